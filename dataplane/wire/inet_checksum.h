// The Internet checksum (RFC 1071), for the codecs of this folder only: add up the words of all
// parts, fold once. Over bytes that hold their own checksum the folded sum is 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rocemu/base/bytes.h"

namespace rocemu::wire {

/// Sum of the 16-bit words of `n` bytes; an odd last byte counts as the upper half of a word. `n`
/// is at most 65,535, so that sums of a few parts do not overflow.
inline std::uint32_t sum_words(const std::byte* p, std::size_t n) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 2 <= n; i += 2) sum += load_be<std::uint16_t>(p + i);
  if (n % 2 != 0) sum += std::to_integer<std::uint32_t>(p[n - 1]) << 8;
  return sum;
}

/// The checksum of what was added up.
inline std::uint16_t fold_checksum(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace rocemu::wire
