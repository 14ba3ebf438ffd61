// Round robin: order of arrival, every owner once, any capacity up to its limit.
#include "dataplane/sched/run_queue.h"

#include <gtest/gtest.h>

namespace rocemu::sched {
namespace {

TEST(RunQueue, EmptyGivesNothing) {
  RunQueue queue(3);
  EXPECT_TRUE(queue.is_empty());
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(RunQueue, ComesOutInTheOrderOfArrivalAcrossTheEndOfTheArray) {
  RunQueue queue(3);
  std::uint32_t next_out = 0;
  std::uint32_t next_in = 0;
  for (int round = 0; round < 100; ++round) {
    while (queue.size() < 3) queue.push(next_in++);
    EXPECT_EQ(queue.pop(), next_out++);
    EXPECT_EQ(queue.pop(), next_out++);
  }
}

TEST(RunQueue, TakesAllOwnersAtOnce) {
  for (const std::uint32_t owners : {1u, 2u, 4u, 5u, 8u}) {
    RunQueue queue(owners);
    for (std::uint32_t i = 0; i < owners; ++i) queue.push(i);
    EXPECT_EQ(queue.size(), owners);
    for (std::uint32_t i = 0; i < owners; ++i) EXPECT_EQ(queue.pop(), i);
    EXPECT_TRUE(queue.is_empty());
  }
}

TEST(RunQueue, RemovesAnOwnerWhereverItStands) {
  for (std::uint32_t removed = 0; removed < 5; ++removed) {
    RunQueue queue(4);
    for (std::uint32_t i = 0; i < 4; ++i) queue.push(i);
    queue.remove(removed);  // 4: is not there
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (i != removed) {
        EXPECT_EQ(queue.pop(), i);
      }
    }
    EXPECT_TRUE(queue.is_empty());
  }
}

}  // namespace
}  // namespace rocemu::sched
