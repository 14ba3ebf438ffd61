// Time in the core: a point and a span, both signed 64-bit nanoseconds. Neither type can read a
// clock: time enters every module below the drivers as a `Time now` argument, sampled once a turn,
// so the same code runs in real and virtual time.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace rocemu {

/// A span of time. Unit: nanoseconds.
struct Duration {
  std::int64_t ns = 0;

  friend constexpr auto operator<=>(Duration, Duration) = default;
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
  friend constexpr Duration operator*(Duration a, std::int64_t k) { return {a.ns * k}; }
};

constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }

/// A point in time. Unit: nanoseconds since an origin that the driver chooses.
struct Time {
  std::int64_t ns = 0;

  static constexpr Time never() { return {std::numeric_limits<std::int64_t>::max()}; }
  constexpr bool is_never() const { return ns == std::numeric_limits<std::int64_t>::max(); }

  friend constexpr auto operator<=>(Time, Time) = default;
  friend constexpr Time operator+(Time t, Duration d) { return {t.ns + d.ns}; }
  friend constexpr Time operator-(Time t, Duration d) { return {t.ns - d.ns}; }
  friend constexpr Duration operator-(Time a, Time b) { return {a.ns - b.ns}; }
};

}  // namespace rocemu
