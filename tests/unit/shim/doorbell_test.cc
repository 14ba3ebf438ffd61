// The client's half of the doorbell page against a worker that sleeps at every chance.
#include "verbs_shim/doorbell.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/shim/fake_daemon.h"

namespace rocemu::shim {
namespace {

using Clock = std::chrono::steady_clock;

class DoorbellTest : public testing::Test {
 protected:
  void SetUp() override {
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_GE(wake_fd_, 0);
    void* memory = mmap(nullptr, sizeof(DoorbellPage), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    page_ = static_cast<DoorbellPage*>(memory);
  }
  void TearDown() override {
    munmap(page_, sizeof(DoorbellPage));
    close(wake_fd_);
  }

  bool is_wake_pending() {
    std::uint64_t count = 0;
    return read(wake_fd_, &count, sizeof count) == sizeof count;
  }

  // Posts on `slot` and waits until the worker saw it.
  bool post_and_wait(std::uint32_t slot, Clock::time_point deadline) {
    const std::uint32_t posted = words_[slot].load(std::memory_order_relaxed) + 1;
    words_[slot].store(posted, std::memory_order_release);
    ring_qp(*page_, wake_fd_, slot);
    while (words_[test::FakeWorker::kSeen + slot].load(std::memory_order_acquire) != posted) {
      if (Clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  int wake_fd_ = -1;
  DoorbellPage* page_ = nullptr;
  std::vector<std::atomic<std::uint32_t>> words_ =
      std::vector<std::atomic<std::uint32_t>>(2 * test::FakeWorker::kSeen);
};

TEST_F(DoorbellTest, RingingStoresTheSlotOnceUntilTheWorkerTakesIt) {
  ring_qp(*page_, wake_fd_, 7);
  ring_qp(*page_, wake_fd_, 7);

  EXPECT_EQ(page_->producer.load(), 1u);
  EXPECT_EQ(page_->entries[0].load(), 8u);
  EXPECT_EQ(page_->qp_pending[7].load(), 1u);
}

TEST_F(DoorbellTest, AnAwakeWorkerCostsNoSystemCall) {
  ring_qp(*page_, wake_fd_, 0);
  EXPECT_FALSE(is_wake_pending());
}

TEST_F(DoorbellTest, ASleepingWorkerIsWokenOnce) {
  page_->worker_state.store(kAsleep);
  ring_qp(*page_, wake_fd_, 0);
  EXPECT_EQ(page_->worker_state.load(), kAwake);
  EXPECT_TRUE(is_wake_pending());

  ring_qp(*page_, wake_fd_, 1);
  EXPECT_FALSE(is_wake_pending());
}

TEST_F(DoorbellTest, AFullRingAsksForASweepAndKeepsThePendingByte) {
  for (std::uint32_t slot = 0; slot < kDoorbellRingSize; ++slot) ring_qp(*page_, wake_fd_, slot);
  EXPECT_EQ(page_->sweep.load(), 0u);

  page_->worker_state.store(kAsleep);
  ring_qp(*page_, wake_fd_, kDoorbellRingSize);
  EXPECT_EQ(page_->producer.load(), kDoorbellRingSize);
  EXPECT_EQ(page_->sweep.load(), 1u);
  EXPECT_EQ(page_->qp_pending[kDoorbellRingSize].load(), 1u);
  EXPECT_TRUE(is_wake_pending());
}

TEST_F(DoorbellTest, TheLastSlotsAreInsideThePage) {
  ring_qp(*page_, wake_fd_, kMaxQpSlots - 1);
  arm_cq(*page_, wake_fd_, kMaxCqSlots - 1, kArmedAny);
  EXPECT_EQ(page_->entries[0].load(), kMaxQpSlots);
  EXPECT_EQ(page_->entries[1].load(), (kArmCqFlag | (kMaxCqSlots - 1)) + 1);
}

TEST_F(DoorbellTest, AWeakerArmNeverReplacesAStrongerOne) {
  arm_cq(*page_, wake_fd_, 3, kArmedSolicited);
  EXPECT_EQ(page_->cq_arm[3].load(), kArmedSolicited);
  arm_cq(*page_, wake_fd_, 3, kArmedAny);
  EXPECT_EQ(page_->cq_arm[3].load(), kArmedAny);
  arm_cq(*page_, wake_fd_, 3, kArmedSolicited);
  EXPECT_EQ(page_->cq_arm[3].load(), kArmedAny);
}

TEST_F(DoorbellTest, ArmingAlwaysHasTheWorkerLook) {
  page_->worker_state.store(kAsleep);
  arm_cq(*page_, wake_fd_, 3, kArmedAny);
  arm_cq(*page_, wake_fd_, 3, kArmedAny);
  EXPECT_EQ(page_->producer.load(), 2u);
  EXPECT_TRUE(is_wake_pending());
}

TEST_F(DoorbellTest, APunchedPageNeitherHangsNorCrashes) {
  for (std::uint32_t slot = 0; slot < 100; ++slot) ring_qp(*page_, wake_fd_, slot);
  std::memset(static_cast<void*>(page_), 0, sizeof(DoorbellPage));
  page_->consumer.store(0x8000'0000);  // nonsense as only a broken or hostile side leaves it
  ring_qp(*page_, wake_fd_, 5);
  arm_cq(*page_, wake_fd_, 5, kArmedAny);
  EXPECT_EQ(page_->qp_pending[5].load(), 1u);
}

TEST_F(DoorbellTest, TwentyThousandWakesAreNeverLost) {
  test::FakeWorker worker(page_, wake_fd_, words_.data());
  const auto deadline = Clock::now() + std::chrono::seconds(40);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(post_and_wait(9, deadline)) << "round " << i;
  EXPECT_GT(worker.sleeps(), 1'000u);
}

TEST_F(DoorbellTest, ThreadsThatShareAQpAndHaveTheirOwnLoseNothing) {
  test::FakeWorker worker(page_, wake_fd_, words_.data());
  const auto deadline = Clock::now() + std::chrono::seconds(40);
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint32_t kRounds = 5'000;
  std::atomic<bool> has_failed{false};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kRounds && !has_failed.load(); ++i) {
        words_[100].fetch_add(1, std::memory_order_acq_rel);
        ring_qp(*page_, wake_fd_, 100);
        if (!post_and_wait(t, deadline)) has_failed.store(true);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_FALSE(has_failed.load());
  while (words_[test::FakeWorker::kSeen + 100].load() != kThreads * kRounds) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::yield();
  }
}

TEST_F(DoorbellTest, AnOverflowIsSweptWhileOthersRing) {
  test::FakeWorker worker(page_, wake_fd_, words_.data());
  const auto deadline = Clock::now() + std::chrono::seconds(40);
  worker.pause(true);
  for (std::uint32_t i = 0; i < kDoorbellRingSize + 10; ++i) {
    arm_cq(*page_, wake_fd_, 1, kArmedAny);
  }
  words_[42].store(1, std::memory_order_release);
  ring_qp(*page_, wake_fd_, 42);
  worker.pause(false);
  while (words_[test::FakeWorker::kSeen + 42].load() != 1) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_GE(worker.sweeps(), 1u);
}

}  // namespace
}  // namespace rocemu::shim
