// The worker's half of the doorbell page against the shim's own half, and against clients that
// write what they like.
#include "dataplane/dpdk/doorbells.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "rocemu/base/prng.h"
#include "verbs_shim/doorbell.h"

namespace rocemu::dpdk {
namespace {

struct DoorbellTest : testing::Test {
  DoorbellTest() : page(std::make_unique<DoorbellPage>()), bells(page.get()) {}
  ~DoorbellTest() override { ::close(wake_fd); }

  void bind(std::uint32_t count) {
    for (std::uint32_t slot = 0; slot < count; ++slot) bells.bind_qp(slot, QpNum{1000 + slot});
  }
  void ring(std::uint32_t slot) { shim::ring_qp(*page, wake_fd, slot); }
  Doorbells::Rung drain() {
    Doorbells::Rung rung;
    bells.drain(rung);
    return rung;
  }

  std::unique_ptr<DoorbellPage> page;
  Doorbells bells;
  int wake_fd = ::eventfd(0, EFD_NONBLOCK);
};

TEST_F(DoorbellTest, NothingRungNothingFound) {
  bind(1);
  EXPECT_FALSE(bells.has_work());
  EXPECT_TRUE(drain().qps.empty());
}

TEST_F(DoorbellTest, OneRingIsFoundOnce) {
  bind(2);
  ring(1);
  EXPECT_TRUE(bells.has_work());
  EXPECT_EQ(drain().qps, std::vector<QpNum>{QpNum{1001}});
  EXPECT_FALSE(bells.has_work());
  EXPECT_TRUE(drain().qps.empty());
  ring(1);
  EXPECT_EQ(drain().qps.size(), 1u);
}

TEST_F(DoorbellTest, AQueuePairStandsInTheRingOnce) {
  bind(1);
  for (int i = 0; i < 100; ++i) ring(0);
  EXPECT_EQ(drain().qps.size(), 1u);
}

TEST_F(DoorbellTest, AFullRingIsTakenWithoutASweep) {
  bind(kDoorbellRingSize);
  for (std::uint32_t slot = 0; slot < kDoorbellRingSize; ++slot) ring(slot);
  const auto rung = drain();
  EXPECT_EQ(rung.qps.size(), kDoorbellRingSize);
  EXPECT_EQ(rung.sweeps, 0u);
}

TEST_F(DoorbellTest, WhatDoesNotFitTheRingIsSwept) {
  bind(kDoorbellRingSize + 50);
  for (std::uint32_t slot = 0; slot < kDoorbellRingSize + 50; ++slot) ring(slot);
  const auto rung = drain();
  EXPECT_EQ(rung.sweeps, 1u);
  ASSERT_EQ(rung.qps.size(), kDoorbellRingSize + 50u);
  EXPECT_EQ(rung.qps.back(), QpNum{1000 + kDoorbellRingSize + 49});
  EXPECT_FALSE(bells.has_work());
}

TEST_F(DoorbellTest, ALongSweepComesInPieces) {
  const std::uint32_t count = 2 * Doorbells::kSweepSlots + 10;
  bind(count);
  page->qp_pending[count - 1] = 1;
  page->sweep = 1;
  EXPECT_TRUE(drain().qps.empty());
  EXPECT_TRUE(bells.has_work());
  EXPECT_FALSE(bells.try_sleep());
  EXPECT_TRUE(drain().qps.empty());
  EXPECT_EQ(drain().qps, std::vector<QpNum>{QpNum{1000 + count - 1}});
  EXPECT_FALSE(bells.has_work());
}

TEST_F(DoorbellTest, AFlagSetDuringASweepStartsAnother) {
  const std::uint32_t count = Doorbells::kSweepSlots + 10;
  bind(count);
  page->sweep = 1;
  EXPECT_TRUE(drain().qps.empty());
  page->qp_pending[0] = 1;  // behind the sweep already
  page->sweep = 1;
  EXPECT_TRUE(drain().qps.empty());
  EXPECT_EQ(drain().qps, std::vector<QpNum>{QpNum{1000}});
  (void)drain();
  EXPECT_FALSE(bells.has_work());
}

TEST_F(DoorbellTest, AnArmedQueueIsReportedAndSwept) {
  bells.bind_cq(3, CqIndex{33});
  shim::arm_cq(*page, wake_fd, 3, kArmedAny);
  EXPECT_EQ(drain().cqs, std::vector<CqIndex>{CqIndex{33}});
  page->sweep = 1;
  EXPECT_EQ(drain().cqs, std::vector<CqIndex>{CqIndex{33}});
  EXPECT_EQ(bells.unbind_cq(3), CqIndex{33});
  EXPECT_TRUE(bells.unbind_cq(3).is_none());
  page->sweep = 1;
  EXPECT_TRUE(drain().cqs.empty());
}

TEST_F(DoorbellTest, AnUnboundSlotRingsNothing) {
  bind(2);
  ring(1);
  bells.unbind_qp(1);
  const auto rung = drain();
  EXPECT_TRUE(rung.qps.empty());
  EXPECT_EQ(rung.nonsense, 0u) << "the doorbell of a QP that ends is no offence";
}

TEST_F(DoorbellTest, ASlotUsedAgainDoesNotInheritItsPendingByte) {
  bind(1);
  page->qp_pending[0] = 1;
  bells.unbind_qp(0);
  bells.bind_qp(0, QpNum{7});
  ring(0);
  EXPECT_EQ(drain().qps, std::vector<QpNum>{QpNum{7}});
}

TEST_F(DoorbellTest, ValuesThatNoClientWritesAreCountedAndIgnored) {
  bind(4);
  bells.bind_cq(0, CqIndex{5});
  const std::array<std::uint32_t, 6> bad = {4,           kMaxQpSlots,    0x7fff'ffff,
                                            0xffff'fffe, kArmCqFlag | 1, kArmCqFlag | 0xffff'ff};
  for (std::size_t i = 0; i < bad.size(); ++i) page->entries[i] = bad[i] + 1;
  const auto rung = drain();
  EXPECT_TRUE(rung.qps.empty());
  EXPECT_TRUE(rung.cqs.empty());
  EXPECT_EQ(rung.nonsense, bad.size());
}

TEST_F(DoorbellTest, NonsenseInEveryWordEndsABoundedTime) {
  bind(100);
  Prng random(1);
  for (auto& entry : page->entries) entry = static_cast<std::uint32_t>(random.next()) | 1;
  page->producer = 0xdead'beef;
  page->consumer = 0x1234;
  page->worker_state = 77;
  page->sweep = 0xffff'ffff;
  for (std::uint32_t i = 0; i < kMaxQpSlots; i += 7) page->qp_pending[i] = 0xff;
  for (std::uint32_t i = 0; i < kMaxCqSlots; i += 7) page->cq_arm[i] = 0xffff'ffff;
  const auto rung = drain();
  EXPECT_LE(rung.qps.size(), kDoorbellRingSize + 100u);
  EXPECT_TRUE(rung.cqs.empty());
  (void)drain();
  EXPECT_FALSE(bells.has_work());
}

TEST_F(DoorbellTest, AClaimedPlaceThatIsNotWrittenEndsTheBatch) {
  bind(3);
  ring(0);
  page->producer.fetch_add(1);  // another thread claimed a place and was interrupted
  ring(2);
  EXPECT_EQ(drain().qps, std::vector<QpNum>{QpNum{1000}});
  EXPECT_FALSE(bells.has_work());
  page->entries[1] = 1 + 1;
  EXPECT_EQ(drain().qps, (std::vector<QpNum>{QpNum{1001}, QpNum{1002}}));
}

TEST_F(DoorbellTest, SleepIsRefusedWhileSomethingIsRung) {
  bind(1);
  ring(0);
  EXPECT_FALSE(bells.try_sleep());
  EXPECT_EQ(page->worker_state, kAwake);
  (void)drain();
  EXPECT_TRUE(bells.try_sleep());
  EXPECT_EQ(page->worker_state, kAsleep);
}

TEST_F(DoorbellTest, TheFirstRingToASleeperWritesTheDescriptorOnce) {
  bind(2);
  ASSERT_TRUE(bells.try_sleep());
  ring(0);
  ring(1);
  std::uint64_t wakes = 0;
  ASSERT_EQ(::read(wake_fd, &wakes, sizeof wakes), 8);
  EXPECT_EQ(wakes, 1u);
  bells.wake();
  EXPECT_EQ(drain().qps.size(), 2u);
}

// Threads publish numbers a slot and ring; the consumer, which sleeps whenever it may, must in the
// end have seen the last number of every slot. A doorbell or a wake-up that is lost shows as a
// sleep that nobody ends.
TEST_F(DoorbellTest, ThreadsThatRingAtOnceLoseNothing) {
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint32_t kRings = 20'000;
  constexpr std::uint32_t kSlots = 64;
  bind(kSlots);
  std::array<std::atomic<std::uint32_t>, kSlots> published{};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Prng random(t);
      for (std::uint32_t i = 0; i < kRings; ++i) {
        const auto slot = static_cast<std::uint32_t>(random.below(kSlots));
        published[slot].fetch_add(1, std::memory_order_relaxed);  // the QP's producer index
        ring(slot);
        if (random.below(64) == 0) std::this_thread::yield();
      }
    });
  }
  std::uint64_t seen_total = 0;
  std::array<std::uint32_t, kSlots> seen{};
  Doorbells::Rung rung;
  bool is_lost = false;
  while (seen_total < std::uint64_t{kThreads} * kRings && !is_lost) {
    rung.clear();
    bells.drain(rung);
    for (const QpNum qp : rung.qps) {
      const std::uint32_t slot = qp.value - 1000;
      const std::uint32_t now = published[slot].load(std::memory_order_relaxed);
      seen_total += now - seen[slot];
      seen[slot] = now;
    }
    if (seen_total == std::uint64_t{kThreads} * kRings || !bells.try_sleep()) continue;
    pollfd wake{.fd = wake_fd, .events = POLLIN, .revents = 0};
    is_lost = ::poll(&wake, 1, 20'000) <= 0;
    std::uint64_t ignored;
    (void)!::read(wake_fd, &ignored, sizeof ignored);
    bells.wake();
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(is_lost) << "asleep with " << seen_total << " rings seen";
}

}  // namespace
}  // namespace rocemu::dpdk
