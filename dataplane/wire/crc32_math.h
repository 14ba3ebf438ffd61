// The algebra behind the CRC kernels: tables and folding constants of Ethernet's CRC-32, computed
// at compile time from the polynomial, so that no magic number is typed. Shared by the kernels
// only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rocemu::wire::crc32 {

inline constexpr std::uint32_t kPolynomial =
    0x04c1'1db7;  ///< Without x^32, most significant first.

constexpr std::uint32_t reflect(std::uint32_t v) {
  std::uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1u) << (31 - i);
  return r;
}

inline constexpr std::uint32_t kReflectedPolynomial = reflect(kPolynomial);

/// Tables of slicing by eight: row k advances a byte by 1 + k bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? kReflectedPolynomial : 0);
    t[0][i] = c;
  }
  for (std::size_t k = 1; k < t.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 0xff];
  }
  return t;
}
inline constexpr Tables kTables = make_tables();

/// x^n mod P, reflected and shifted up by one: the form that a carry-less multiply of reflected
/// data wants.
constexpr std::uint64_t fold_constant(unsigned n) {
  std::uint32_t r = 1;
  for (unsigned i = 0; i < n; ++i) r = r << 1 ^ (r >> 31 ? kPolynomial : 0);
  return std::uint64_t{reflect(r)} << 1;
}

/// The pair that moves 128 bits forward by `bits`: for the low and the high half.
struct FoldPair {
  std::uint64_t low;
  std::uint64_t high;
};
constexpr FoldPair fold_by(unsigned bits) {
  return {fold_constant(bits + 32), fold_constant(bits - 32)};
}

/// One byte, and eight bytes, by table.
inline std::uint32_t step(std::uint32_t state, std::uint8_t byte) {
  return state >> 8 ^ kTables[0][(state ^ byte) & 0xff];
}
inline std::uint32_t step8(std::uint32_t state, std::uint64_t word) {
  word ^= state;
  return kTables[7][word & 0xff] ^ kTables[6][word >> 8 & 0xff] ^ kTables[5][word >> 16 & 0xff] ^
         kTables[4][word >> 24 & 0xff] ^ kTables[3][word >> 32 & 0xff] ^
         kTables[2][word >> 40 & 0xff] ^ kTables[1][word >> 48 & 0xff] ^ kTables[0][word >> 56];
}

}  // namespace rocemu::wire::crc32
