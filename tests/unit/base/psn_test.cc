// Psn: all 2^24 values, and every distance from bases around the wrap, since each bug of serial
// numbers lives at an edge.
#include "rocemu/base/psn.h"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>

namespace rocemu {
namespace {

constexpr std::int32_t kHalf = 1 << 23;

static_assert(!std::totally_ordered<Psn>, "serial numbers have no order");
static_assert(!std::convertible_to<std::uint32_t, Psn>);

TEST(Psn, TakesTheLow24Bits) {
  EXPECT_EQ(Psn().value(), 0u);
  EXPECT_EQ(Psn(0xff'ffff).value(), 0xff'ffffu);
  EXPECT_EQ(Psn(0x100'0000).value(), 0u);
  EXPECT_EQ(Psn(0xffff'ffff), Psn(0xff'ffff));
}

TEST(Psn, EveryValueHasOneSuccessorAndOnePredecessor) {
  std::uint32_t wrong = 0;
  for (std::uint32_t v = 0; v <= Psn::kMask; ++v) {
    const Psn p(v);
    const std::uint32_t expected = v == Psn::kMask ? 0 : v + 1;
    wrong += p.next().value() != expected || p.next().prev() != p || distance(p, p.next()) != 1 ||
             distance(p, p.prev()) != -1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Psn, DistanceUndoesAdditionOverTheWholeRange) {
  for (const std::uint32_t base : {0u, 1u, 0x7f'ffffu, 0x80'0000u, 0x80'0001u, 0xff'ffffu}) {
    std::uint32_t wrong = 0;
    for (std::int32_t d = -kHalf; d < kHalf; ++d) {
      const Psn from(base);
      wrong += distance(from, from + d) != d || from + d - d != from;
    }
    EXPECT_EQ(wrong, 0u) << base;
  }
}

TEST(Psn, HalfTheCircleAwayIsTheMostNegativeDistanceBothWays) {
  EXPECT_EQ(distance(Psn(0), Psn(0x80'0000)), -kHalf);
  EXPECT_EQ(distance(Psn(0x80'0000), Psn(0)), -kHalf);
  EXPECT_EQ(distance(Psn(0), Psn(0x7f'ffff)), kHalf - 1);
}

TEST(Psn, AdditionWrapsForAnyInteger) {
  EXPECT_EQ(Psn(0xff'ffff) + 1, Psn(0));
  EXPECT_EQ(Psn(0) - 1, Psn(0xff'ffff));
  EXPECT_EQ(Psn(5) + INT32_MIN, Psn(5));  // 2^31 is a multiple of 2^24
  EXPECT_EQ(Psn(5) - INT32_MIN, Psn(5));
  EXPECT_EQ(Psn(0) + INT32_MAX, Psn(0xff'ffff));
}

}  // namespace
}  // namespace rocemu
