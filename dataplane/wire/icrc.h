// The invariant CRC of RoCE (IBTA vol. 1, 7.8.1; A17.4.4 for RoCE v2): Ethernet's CRC-32 over the
// packet from the (for v2, absent and all-ones) LRH on, with the fields that routers may change
// replaced by ones. Works on the raw register: seed, feed, finish. The fastest kernel of this CPU
// (VPCLMULQDQ, PCLMULQDQ, portable slices) is chosen once at start-up; all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rocemu::wire {

/// Running register, not complemented.
struct Icrc {
  std::uint32_t state = 0;
};

/// Register after the masked headers of a frame. `l3_offset`: offset of the IP header or GRH in
/// `headers`; `headers` ends after the BTH and extended headers (payload excluded). The kind is
/// read from the version nibble and `is_v1`.
Icrc icrc_begin(std::span<const std::byte> headers, std::size_t l3_offset, bool is_v1);

/// Register after `bytes` more.
Icrc icrc_update(Icrc crc, std::span<const std::byte> bytes);

/// Copies `bytes` bytes forward from `source` to `destination` (which must not overlap) and returns
/// the register after them: one pass over memory. The last 8 bytes of the destination (of less than
/// 8: the last byte) are stored last, so that who polls on the last byte sees all.
Icrc icrc_copy(Icrc crc, std::byte* destination, const std::byte* source, std::size_t bytes);

/// The value to put on the wire: complemented, stored little-endian as the frame's last four bytes.
std::uint32_t icrc_finish(Icrc crc);

/// Stores / reads the four wire bytes.
void store_icrc(std::byte* p, std::uint32_t value);
std::uint32_t load_icrc(const std::byte* p);

/// A CRC kernel; all are listed so that tests and benches can run each that the CPU has.
struct IcrcKernel {
  std::string_view name;
  bool (*is_supported)();
  std::uint32_t (*update)(std::uint32_t state, const std::byte* p, std::size_t n);
  std::uint32_t (*copy)(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t n);
};
std::span<const IcrcKernel> icrc_kernels();  ///< Fastest first.
const IcrcKernel& active_icrc_kernel();      ///< The first supported one; chosen before main().

}  // namespace rocemu::wire
