// SpscRing: full and empty, wrap of slots and of the 32-bit indices' low bits, move-only elements,
// and two threads. The threaded test ends by count; run it under TSan for the ordering.
#include "rocemu/base/spsc_ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

namespace rocemu {
namespace {

TEST(SpscRing, IsEmptyAtFirst) {
  SpscRing<int> ring(4);
  EXPECT_TRUE(ring.is_empty());
  EXPECT_EQ(ring.try_pop(), std::nullopt);
}

TEST(SpscRing, HoldsExactlyItsCapacity) {
  for (const std::uint32_t capacity : {1u, 2u, 8u}) {
    SpscRing<std::uint32_t> ring(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) EXPECT_TRUE(ring.try_push(i + 0));
    EXPECT_FALSE(ring.try_push(99));
    EXPECT_EQ(ring.try_pop(), 0u);
    EXPECT_TRUE(ring.try_push(capacity + 0));
    EXPECT_FALSE(ring.try_push(99));
    for (std::uint32_t i = 1; i <= capacity; ++i) EXPECT_EQ(ring.try_pop(), i);
    EXPECT_TRUE(ring.is_empty());
  }
}

TEST(SpscRing, KeepsOrderOverManyRounds) {
  SpscRing<int> ring(4);
  int pushed = 0;
  int popped = 0;
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < round % 4 + 1; ++i) {
      ASSERT_TRUE(ring.try_push(pushed + 0));
      ++pushed;
    }
    while (const auto value = ring.try_pop()) ASSERT_EQ(*value, popped++);
    ASSERT_EQ(popped, pushed);
  }
}

TEST(SpscRing, AFullRingLeavesTheValueToItsOwner) {
  SpscRing<std::unique_ptr<int>> ring(1);
  ASSERT_TRUE(ring.try_push(std::make_unique<int>(1)));
  auto mine = std::make_unique<int>(2);
  EXPECT_FALSE(ring.try_push(std::move(mine)));
  ASSERT_NE(mine, nullptr);  // NOLINT(bugprone-use-after-move): that is the promise
  EXPECT_EQ(*mine, 2);
  const auto first = ring.try_pop();
  ASSERT_TRUE(first);
  EXPECT_EQ(**first, 1);
}

TEST(SpscRing, TwoThreadsLoseAndRepeatNothing) {
  constexpr std::uint64_t kCount = 200'000;
  SpscRing<std::uint64_t> ring(64);
  std::thread producer([&ring] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (ring.try_push(i + 0)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::uint64_t expected = 0;
  std::uint64_t wrong = 0;
  while (expected < kCount) {
    if (const auto value = ring.try_pop()) {
      wrong += *value != expected++;
    } else {
      std::this_thread::yield();
    }
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(ring.is_empty());
}

TEST(SpscRingDeathTest, CapacityIsAPowerOfTwo) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(SpscRing<int>(3), "invariant broken");
}

}  // namespace
}  // namespace rocemu
