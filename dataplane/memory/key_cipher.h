// A keyed permutation of 32 bits: memory keys look random and sparse, and turn back into
// (generation, index) without a table. A balanced Feistel network of four rounds; it hides the
// order of allocation from peers, no more is asked of it.
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

  std::uint32_t encrypt(std::uint32_t v) const {
    auto left = static_cast<std::uint16_t>(v >> 16);
    auto right = static_cast<std::uint16_t>(v);
    for (const std::uint32_t key : round_keys_) {
      const auto next = static_cast<std::uint16_t>(left ^ round(right, key));
      left = right;
      right = next;
    }
    return std::uint32_t{left} << 16 | right;
  }

  std::uint32_t decrypt(std::uint32_t v) const {
    auto left = static_cast<std::uint16_t>(v >> 16);
    auto right = static_cast<std::uint16_t>(v);
    for (auto key = round_keys_.rbegin(); key != round_keys_.rend(); ++key) {
      const auto previous = static_cast<std::uint16_t>(right ^ round(left, *key));
      right = left;
      left = previous;
    }
    return std::uint32_t{left} << 16 | right;
  }

 private:
  static std::uint16_t round(std::uint16_t half, std::uint32_t key) {
    std::uint32_t x = (half + 0x9e37u) * key;
    x ^= x >> 15;
    x *= 0x2c1b'3c6d;
    return static_cast<std::uint16_t>(x >> 13);
  }

  std::array<std::uint32_t, 4> round_keys_{};
};

}  // namespace rocemu::memory
