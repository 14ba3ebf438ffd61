// Packet sequence numbers: 24-bit serial numbers that wrap (IBTA vol. 1, 9.7.2). There is
// deliberately no operator<: order exists only as a signed distance, valid while the two lie within
// 2^23 of each other.
#pragma once

#include <cstdint>

namespace rocemu {

class Psn {
 public:
  static constexpr std::uint32_t kMask = 0xff'ffff;

  constexpr Psn() = default;
  /// Takes the low 24 bits of `value`.
  constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr Psn next() const { return Psn(value_ + 1); }
  constexpr Psn prev() const { return Psn(value_ - 1); }

  friend constexpr bool operator==(Psn, Psn) = default;
  /// `n` may be negative.
  friend constexpr Psn operator+(Psn p, std::int32_t n) {
    return Psn(p.value_ + static_cast<std::uint32_t>(n));
  }
  friend constexpr Psn operator-(Psn p, std::int32_t n) {
    return Psn(p.value_ - static_cast<std::uint32_t>(n));
  }

 private:
  std::uint32_t value_ = 0;
};

/// Signed distance from `from` to `to` in PSNs, in [-2^23, 2^23). Positive: `to` is later.
constexpr std::int32_t distance(Psn from, Psn to) {
  const std::uint32_t d = (to.value() - from.value()) & Psn::kMask;
  return static_cast<std::int32_t>(d << 8) >> 8;
}

}  // namespace rocemu
