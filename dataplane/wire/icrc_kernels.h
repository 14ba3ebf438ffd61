// The CRC kernels, one file an instruction set, listed by icrc.cc. Each has the contract of
// IcrcKernel in icrc.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/wire/crc32_math.h"
#include "dataplane/wire/icrc.h"

namespace rocemu::wire {

extern const IcrcKernel kPortableKernel;
extern const IcrcKernel kPclmulKernel;
extern const IcrcKernel kVpclmulKernel;

namespace crc32 {

/// What a kernel does with the bytes besides checksumming them.
enum class Mode : bool { kUpdate, kCopy };

/// The rest that no vector takes: eight bytes at a time, then single ones; forward.
template <Mode mode>
inline std::uint32_t run_scalar(std::uint32_t state, std::byte* to, const std::byte* from,
                                std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, from + i, 8);
    if constexpr (mode == Mode::kCopy) std::memcpy(to + i, &word, 8);
    state = step8(state, word);
  }
  for (; i < n; ++i) {
    if constexpr (mode == Mode::kCopy) to[i] = from[i];
    state = step(state, std::to_integer<std::uint8_t>(from[i]));
  }
  return state;
}

/// A copying kernel from a vector loop: all but the last eight bytes (of less than eight: the last
/// one) by `run`, those by one store at the end, which the compiler may not move up. Stores retire
/// in order on x86, so whoever sees the last byte sees all.
template <auto run>
std::uint32_t copy_tail_last(std::uint32_t state, std::byte* to, const std::byte* from,
                             std::size_t n) {
  if (n == 0) return state;
  if (n < 8) {
    state = run_scalar<Mode::kCopy>(state, to, from, n - 1);
    __atomic_signal_fence(__ATOMIC_RELEASE);
    return run_scalar<Mode::kCopy>(state, to + (n - 1), from + (n - 1), 1);
  }
  std::uint64_t tail;
  std::memcpy(&tail, from + n - 8, 8);
  state = run(state, to, from, n - 8);
  __atomic_signal_fence(__ATOMIC_RELEASE);
  std::memcpy(to + n - 8, &tail, 8);
  return step8(state, tail);
}

}  // namespace crc32
}  // namespace rocemu::wire
