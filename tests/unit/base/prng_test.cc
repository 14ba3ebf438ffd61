// Prng: known values (computed by an independent implementation of SplitMix64 and xoshiro256**),
// bounds, and a coarse look at the distribution.
#include "rocemu/base/prng.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace rocemu {
namespace {

TEST(Prng, GivesTheKnownStreams) {
  struct Known {
    std::uint64_t seed;
    std::array<std::uint64_t, 4> values;
  };
  constexpr std::array<Known, 4> kKnown = {{
      {0,
       {0x99ec'5f36'cb75'f2b4, 0xbf6e'1f78'4956'452a, 0x1a5f'849d'4933'e6e0,
        0x6aa5'94f1'262d'2d2c}},
      {1,
       {0xb3f2'af6d'0fc7'10c5, 0x853b'5596'4736'4cea, 0x92f8'9756'082a'4514,
        0x642e'1c7b'c266'a3a7}},
      {42,
       {0x1578'0b2e'0c2e'c716, 0x6104'd986'6d11'3a7e, 0xae17'5332'39e4'99a1,
        0xecb8'ad47'03b3'60a1}},
      {~std::uint64_t{0},
       {0x8f55'20d5'2a7e'ad08, 0xc476'a018'caa1'802d, 0x81de'31c0'd260'469e,
        0xbf65'8d7e'065f'3c2f}},
  }};
  for (const Known& known : kKnown) {
    Prng prng(known.seed);
    for (const std::uint64_t value : known.values) EXPECT_EQ(prng.next(), value) << known.seed;
  }
}

TEST(Prng, IsUsableAtCompileTime) {
  constexpr std::uint64_t kFirst = Prng(0).next();
  static_assert(kFirst == 0x99ec'5f36'cb75'f2b4);
}

TEST(Prng, StaysBelowItsBound) {
  Prng prng(7);
  EXPECT_EQ(prng.below(0), 0u);
  for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{10},
                                    std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    for (int i = 0; i < 1000; ++i) ASSERT_LT(prng.below(bound), bound);
  }
}

TEST(Prng, BetweenReachesBothEndsAndNothingElse) {
  Prng prng(8);
  std::array<int, 4> seen{};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t v = prng.between(5, 8);
    ASSERT_GE(v, 5u);
    ASSERT_LE(v, 8u);
    ++seen[v - 5];
  }
  for (const int count : seen) EXPECT_GT(count, 150);
  EXPECT_EQ(prng.between(9, 9), 9u);
}

TEST(Prng, ChanceKeepsItsRate) {
  Prng prng(9);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_FALSE(prng.chance_ppm(0));
    ASSERT_TRUE(prng.chance_ppm(1'000'000));
    hits += prng.chance_ppm(250'000);
  }
  EXPECT_NEAR(hits, 25'000, 700);  // five standard deviations
}

TEST(Prng, AForkIsAStreamOfItsOwn) {
  Prng parent(3);
  Prng same_parent(3);
  Prng child = parent.fork();
  (void)same_parent.next();
  EXPECT_NE(child.next(), Prng(3).next());
  for (int i = 0; i < 10; ++i) (void)child.next();
  EXPECT_EQ(parent.next(), same_parent.next()) << "drawing from a fork leaves its parent alone";
}

}  // namespace
}  // namespace rocemu
