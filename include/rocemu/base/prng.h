// The one source of randomness: SplitMix64-seeded xoshiro256**, passed in where it is needed. The
// same seed gives the same stream on every machine; independent streams come from fork().
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace rocemu {

class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9e37'79b9'7f4a'7c15;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
      z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
      word = z ^ (z >> 31);
    }
  }

  constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound); 0 when bound is 0.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// Uniform in [low, high], both included.
  constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  /// True with probability `parts_per_million` / 10^6.
  constexpr bool chance_ppm(std::uint32_t parts_per_million) {
    return below(1'000'000) < parts_per_million;
  }
  /// A stream of its own; drawing from it leaves this one alone.
  constexpr Prng fork() { return Prng(next()); }

 private:
  __extension__ using Wide = unsigned __int128;

  std::array<std::uint64_t, 4> state_{};
};

}  // namespace rocemu
