// Masking of the headers and choice of the kernel. What routers may change is replaced by ones on a
// private copy of the headers, which are at most kMaxIcrcHeaders bytes; the payload is never copied
// for it.
#include "dataplane/wire/icrc.h"

#include <array>
#include <cstring>

#include "dataplane/wire/icrc_kernels.h"
#include "rocemu/base/bytes.h"
#include "rocemu/base/check.h"

namespace rocemu::wire {
namespace {

// IPv6 or GRH, UDP, BTH, and the longest set of extended headers.
constexpr std::size_t kMaxIcrcHeaders = 40 + 8 + 12 + 44;
constexpr std::size_t kLrhBytes = 8;

// Register after the eight bytes of ones that stand for the LRH (A17.4.4), from all ones.
constexpr std::uint32_t after_lrh() {
  std::uint32_t state = 0xffff'ffff;
  for (std::size_t i = 0; i < kLrhBytes; ++i) {
    state = state >> 8 ^ crc32::kTables[0][(state ^ 0xff) & 0xff];
  }
  return state;
}
constexpr std::uint32_t kSeed = after_lrh();

constexpr std::byte kOnes{0xff};

// Masks the network header at `p`; returns the offset of the BTH.
std::size_t mask_network(std::byte* p, bool is_v1) {
  if ((p[0] & std::byte{0xf0}) == std::byte{0x40}) {
    p[1] = kOnes;           // TOS
    p[8] = kOnes;           // TTL
    p[10] = p[11] = kOnes;  // header checksum
    p[26] = p[27] = kOnes;  // UDP checksum
    return 28;
  }
  p[0] |= std::byte{0x0f};  // traffic class and flow label
  p[1] = p[2] = p[3] = kOnes;
  p[7] = kOnes;  // hop limit
  if (is_v1) return 40;
  p[46] = p[47] = kOnes;  // UDP checksum
  return 48;
}

constexpr std::array kKernelOrder = {&kVpclmulKernel, &kPclmulKernel, &kPortableKernel};

std::array<IcrcKernel, kKernelOrder.size()> copy_kernels() {
  std::array<IcrcKernel, kKernelOrder.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = *kKernelOrder[i];
  return out;
}

const IcrcKernel& choose_kernel() {
  for (const IcrcKernel* kernel : kKernelOrder) {
    if (kernel->is_supported()) return *kernel;
  }
  return kPortableKernel;
}

// The portable one until this file's initialiser ran, then the fastest one, for good; no guard
// stands in the packet path.
constinit const IcrcKernel* g_active = &kPortableKernel;
[[maybe_unused]] const bool g_is_chosen = [] {
  g_active = &choose_kernel();
  return true;
}();

}  // namespace

Icrc icrc_begin(std::span<const std::byte> headers, std::size_t l3_offset, bool is_v1) {
  const std::size_t n = headers.size() - l3_offset;
  ROCEMU_CHECK(l3_offset <= headers.size());
  ROCEMU_CHECK(n <= kMaxIcrcHeaders);
  std::array<std::byte, kMaxIcrcHeaders> masked;
  std::memcpy(masked.data(), headers.data() + l3_offset, n);
  const std::size_t bth = mask_network(masked.data(), is_v1);
  masked[bth + 4] = kOnes;  // FECN, BECN, reserved
  return {g_active->update(kSeed, masked.data(), n)};
}

Icrc icrc_update(Icrc crc, std::span<const std::byte> bytes) {
  return {g_active->update(crc.state, bytes.data(), bytes.size())};
}

Icrc icrc_copy(Icrc crc, std::byte* destination, const std::byte* source, std::size_t bytes) {
  return {g_active->copy(crc.state, destination, source, bytes)};
}

std::uint32_t icrc_finish(Icrc crc) { return ~crc.state; }

void store_icrc(std::byte* p, std::uint32_t value) {
  // Little-endian: the reverse of network order.
  store_be<std::uint32_t>(p, __builtin_bswap32(value));
}

std::uint32_t load_icrc(const std::byte* p) { return __builtin_bswap32(load_be<std::uint32_t>(p)); }

std::span<const IcrcKernel> icrc_kernels() {
  static const auto kernels = copy_kernels();
  return kernels;
}

const IcrcKernel& active_icrc_kernel() { return *g_active; }

}  // namespace rocemu::wire
