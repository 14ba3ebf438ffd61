// The consumer of a doorbell page as include/rocemu/abi/doorbell.h asks for it, reduced to what
// tests observe. It sleeps whenever it is idle, without spinning, to make wake-ups as frequent as
// possible.
#include <poll.h>
#include <unistd.h>

#include "tests/unit/shim/fake_daemon.h"

namespace rocemu::test {

FakeWorker::FakeWorker(DoorbellPage* page, int wake_fd, std::atomic<std::uint32_t>* memory)
    : page_(page), wake_fd_(wake_fd), memory_(memory), thread_([this] { loop(); }) {}

FakeWorker::~FakeWorker() {
  is_stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  thread_.join();
}

void FakeWorker::loop() {
  while (!is_stopping_.load(std::memory_order_acquire)) {
    if (is_paused_.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    } else if (!drain()) {
      sleep_if_idle();
    }
  }
}

bool FakeWorker::drain() {
  bool has_worked = false;
  std::uint32_t at = page_->consumer.load(std::memory_order_relaxed);
  for (; !is_paused_.load(std::memory_order_acquire); ++at) {
    auto& place = page_->entries[at % kDoorbellRingSize];
    const std::uint32_t stored = place.load(std::memory_order_acquire);
    if (stored == 0) break;
    place.store(0, std::memory_order_relaxed);
    page_->consumer.store(at + 1, std::memory_order_release);
    has_worked = true;
    const std::uint32_t entry = stored - 1;
    if ((entry & kArmCqFlag) != 0) {
      arms_.fetch_add(1, std::memory_order_relaxed);
    } else {
      consume(entry);
    }
  }
  if (page_->sweep.load(std::memory_order_relaxed) != 0 &&
      page_->sweep.exchange(0, std::memory_order_acq_rel) != 0) {
    sweeps_.fetch_add(1, std::memory_order_relaxed);
    has_worked = true;
    for (std::uint32_t slot = 0; slot < kSeen; ++slot) consume(slot);
  }
  return has_worked;
}

void FakeWorker::consume(std::uint32_t slot) {
  if (slot >= kSeen) return;
  page_->qp_pending[slot].exchange(0, std::memory_order_acq_rel);
  const std::uint32_t posted = memory_[slot].load(std::memory_order_acquire);
  memory_[kSeen + slot].store(posted, std::memory_order_release);
}

void FakeWorker::sleep_if_idle() {
  page_->worker_state.exchange(kAsleep, std::memory_order_seq_cst);
  const std::uint32_t at = page_->consumer.load(std::memory_order_relaxed);
  const bool is_idle =
      page_->entries[at % kDoorbellRingSize].load(std::memory_order_seq_cst) == 0 &&
      page_->sweep.load(std::memory_order_seq_cst) == 0 &&
      !is_stopping_.load(std::memory_order_acquire);
  if (is_idle) {
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    pollfd wake{wake_fd_, POLLIN, 0};
    (void)poll(&wake, 1, -1);  // a lost wake-up hangs here, and the test's deadline shows it
    std::uint64_t count = 0;
    (void)!read(wake_fd_, &count, sizeof count);
  }
  page_->worker_state.store(kAwake, std::memory_order_release);
}

}  // namespace rocemu::test
