// Deadlines against a plain model: nothing is forgotten, nothing comes early, order is by time.
#include "dataplane/sched/deadline_queue.h"

#include <gtest/gtest.h>

#include <map>

#include "rocemu/base/prng.h"

namespace rocemu::sched {
namespace {

Time at(std::int64_t ns) { return Time{ns}; }

TEST(DeadlineQueue, EmptyHasNothingDue) {
  DeadlineQueue queue(4);
  EXPECT_FALSE(queue.next().has_value());
  EXPECT_FALSE(queue.pop_due(at(1'000'000)).has_value());
}

TEST(DeadlineQueue, OneIsDueAtItsTimeAndNotBefore) {
  DeadlineQueue queue(4);
  queue.watch(3, at(100));
  EXPECT_EQ(queue.next(), at(100));
  EXPECT_FALSE(queue.pop_due(at(99)).has_value());
  EXPECT_EQ(queue.pop_due(at(100)), 3u);
  EXPECT_FALSE(queue.next().has_value());
}

TEST(DeadlineQueue, EarlierMovesLaterDoesNot) {
  DeadlineQueue queue(4);
  queue.watch(0, at(100));
  queue.watch(0, at(200));
  EXPECT_EQ(queue.next(), at(100));
  queue.watch(0, at(50));
  EXPECT_EQ(queue.next(), at(50));
  EXPECT_EQ(queue.pop_due(at(300)), 0u);
  EXPECT_FALSE(queue.pop_due(at(300)).has_value());
}

TEST(DeadlineQueue, ForgottenOwnersDoNotComeBack) {
  DeadlineQueue queue(4);
  queue.forget(2);
  for (std::uint32_t owner = 0; owner < 4; ++owner) queue.watch(owner, at(10 + owner));
  queue.forget(0);
  queue.forget(2);
  EXPECT_EQ(queue.pop_due(at(100)), 1u);
  EXPECT_EQ(queue.pop_due(at(100)), 3u);
  EXPECT_FALSE(queue.pop_due(at(100)).has_value());
}

TEST(DeadlineQueue, AgreesWithAModelOverRandomUse) {
  constexpr std::uint32_t kOwners = 64;
  Prng draw(5);
  DeadlineQueue queue(kOwners);
  std::map<std::uint32_t, Time> model;
  for (int step = 0; step < 50'000; ++step) {
    const auto owner = static_cast<std::uint32_t>(draw.below(kOwners));
    const Time when = at(static_cast<std::int64_t>(draw.below(1000)));
    switch (draw.below(4)) {
      case 0:
        queue.forget(owner);
        model.erase(owner);
        break;
      case 1: {
        Time earliest = Time::never();
        for (const auto& [o, t] : model) earliest = std::min(earliest, t);
        const auto popped = queue.pop_due(when);
        ASSERT_EQ(popped.has_value(), earliest <= when);
        if (!popped) break;
        ASSERT_EQ(model.at(*popped), earliest);
        model.erase(*popped);
        break;
      }
      default: {
        queue.watch(owner, when);
        const auto [entry, is_new] = model.emplace(owner, when);
        if (!is_new) entry->second = std::min(entry->second, when);
      }
    }
  }
}

}  // namespace
}  // namespace rocemu::sched
