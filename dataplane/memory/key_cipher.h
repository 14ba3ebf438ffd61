// A keyed permutation of 24 bits: the upper part of a memory key looks random and sparse, and turns
// back into (generation, slot) without a table. The lower 8 bits are apart, because the consumer
// chooses those of a type 2 memory window (10.6.7.2.1). A balanced Feistel network of four rounds;
// it hides the order of allocation from peers, no more is asked of it.
#pragma once

#include <array>
#include <cstdint>

#include "rocemu/base/prng.h"

namespace rocemu::memory {

class KeyCipher {
 public:
  explicit KeyCipher(Prng secret) {
    for (auto& key : round_keys_) key = static_cast<std::uint32_t>(secret.next()) | 1;
  }

  /// `v` is below 2^24, and so is the result.
  std::uint32_t encrypt(std::uint32_t v) const {
    std::uint32_t left = v >> kHalfBits & kHalfMask;
    std::uint32_t right = v & kHalfMask;
    for (const std::uint32_t key : round_keys_) {
      const std::uint32_t next = left ^ round(right, key);
      left = right;
      right = next;
    }
    return left << kHalfBits | right;
  }

  std::uint32_t decrypt(std::uint32_t v) const {
    std::uint32_t left = v >> kHalfBits & kHalfMask;
    std::uint32_t right = v & kHalfMask;
    for (auto key = round_keys_.rbegin(); key != round_keys_.rend(); ++key) {
      const std::uint32_t previous = right ^ round(left, *key);
      right = left;
      left = previous;
    }
    return left << kHalfBits | right;
  }

  /// A byte that depends on all of `v`: hides a counter in the lower 8 bits of a key.
  std::uint8_t mask_of(std::uint32_t v) const {
    return static_cast<std::uint8_t>(round(v, round_keys_.front()));
  }

 private:
  static constexpr unsigned kHalfBits = 12;
  static constexpr std::uint32_t kHalfMask = (1u << kHalfBits) - 1;

  static std::uint32_t round(std::uint32_t half, std::uint32_t key) {
    std::uint32_t x = (half + 0x9e37u) * key;
    x ^= x >> 15;
    x *= 0x2c1b'3c6d;
    return x >> 13 & kHalfMask;
  }

  std::array<std::uint32_t, 4> round_keys_{};
};

}  // namespace rocemu::memory
