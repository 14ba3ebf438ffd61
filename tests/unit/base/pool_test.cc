// Pool: zero, one, many, all, one too many; reuse; alignment; what must stop the process.
#include "rocemu/base/pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "rocemu/base/prng.h"

namespace rocemu {
namespace {

struct alignas(128) Wide {
  std::uint64_t value;
};

TEST(Pool, WithoutSlotsGivesNothing) {
  Pool<int> pool(0);
  EXPECT_EQ(pool.acquire(), std::nullopt);
  EXPECT_FALSE(pool.is_live(0));
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(Pool, FirstUseIsZeroedAndInOrder) {
  Pool<std::uint64_t> pool(100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    const auto index = pool.acquire();
    ASSERT_EQ(index, i);
    EXPECT_EQ(pool[*index], 0u);
    pool[*index] = i + 1;
  }
  EXPECT_EQ(pool.acquire(), std::nullopt);
  EXPECT_EQ(pool.in_use(), pool.capacity());
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(pool[i], i + 1);
}

TEST(Pool, LastReleasedComesBackFirstWithItsContents) {
  Pool<int> pool(3);
  for (int i = 0; i < 3; ++i) pool[*pool.acquire()] = 10 + i;
  pool.release(0);
  pool.release(2);
  EXPECT_EQ(pool.acquire(), 2u);
  EXPECT_EQ(pool[2], 12);
  EXPECT_EQ(pool.acquire(), 0u);
  EXPECT_EQ(pool.acquire(), std::nullopt);
}

TEST(Pool, SlotsAreAligned) {
  Pool<Wide> pool(5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&pool[*pool.acquire()]) % alignof(Wide), 0u);
  }
}

TEST(Pool, HighWaterBoundsTheLiveSlotsAndNeverFalls) {
  Pool<int> pool(10);
  EXPECT_EQ(pool.high_water(), 0u);
  pool.acquire();
  pool.acquire();
  pool.release(0);
  pool.release(1);
  EXPECT_EQ(pool.high_water(), 2u);
  EXPECT_EQ(pool.in_use(), 0u);
  EXPECT_FALSE(pool.is_live(0));
  EXPECT_FALSE(pool.is_live(9));
}

TEST(Pool, RandomUseAgreesWithASet) {
  constexpr std::uint32_t kCapacity = 37;
  Pool<int> pool(kCapacity);
  std::set<std::uint32_t> live;
  Prng prng(1);
  for (int step = 0; step < 20'000; ++step) {
    if (prng.below(2) == 0) {
      const auto index = pool.acquire();
      ASSERT_EQ(index.has_value(), live.size() < kCapacity);
      if (index) {
        ASSERT_TRUE(live.insert(*index).second);
      }
    } else if (!live.empty()) {
      auto victim = live.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(prng.below(live.size())));
      pool.release(*victim);
      live.erase(victim);
    }
    ASSERT_EQ(pool.in_use(), live.size());
  }
  for (std::uint32_t i = 0; i < kCapacity; ++i) EXPECT_EQ(pool.is_live(i), live.contains(i));
}

TEST(PoolDeathTest, ReleasingWhatIsNotTakenStopsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Pool<int> pool(2);
  pool.acquire();
  pool.release(0);
  EXPECT_DEATH(pool.release(0), "invariant broken");
  EXPECT_DEATH(pool.release(1), "invariant broken");
  EXPECT_DEATH(pool.release(0xffff'fffe), "invariant broken");
}

}  // namespace
}  // namespace rocemu
