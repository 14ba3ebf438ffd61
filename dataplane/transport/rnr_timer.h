// RNR NAK timer field to time (IBTA vol. 1, 9.7.5.2.8, table 45).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rocemu/base/time.h"

namespace rocemu::transport {

/// Hundredths of a millisecond, by the five-bit field.
inline constexpr std::array<std::uint32_t, 32> kRnrTimerCentiMs = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

constexpr Duration rnr_timer(std::uint8_t field) {
  return microseconds(10) * kRnrTimerCentiMs[field & 0x1f];
}

/// ACK timeout of the local ack timeout field: 4.096 us * 2^t (9.7.6.1.3); 0 means none.
constexpr Duration ack_timeout(std::uint8_t field) {
  return nanoseconds(4096) * (std::int64_t{1} << (field & 0x1f));
}

}  // namespace rocemu::transport
