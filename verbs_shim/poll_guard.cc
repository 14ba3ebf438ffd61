#include "verbs_shim/poll_guard.h"

#include <sched.h>
#include <time.h>

#include <cerrno>
#include <utility>

namespace rocemu::shim {
namespace {

// CQs share stripes: a poll of another CQ waits a little longer, no more.
constexpr std::size_t kStripes = 64;
constexpr std::uint32_t kStopped = 1u << 31;  // below: polls that are in
constexpr std::int64_t kPatienceNs = 1'000'000'000;

struct alignas(64) Stripe {
  std::atomic<std::uint32_t> word{0};
};
constinit Stripe stripes[kStripes];

std::atomic<std::uint32_t>& stripe_of(const void* cq) {
  return stripes[(reinterpret_cast<std::uintptr_t>(cq) >> 6) % kStripes].word;
}

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void yield() {
  const int saved = errno;
  sched_yield();
  errno = saved;
}

bool stop(std::atomic<std::uint32_t>& stripe, std::int64_t deadline) {
  for (;;) {
    std::uint32_t nobody = 0;
    if (stripe.compare_exchange_weak(nobody, kStopped, std::memory_order_acq_rel)) return true;
    if (now_ns() >= deadline) return false;
    yield();
  }
}

void restart(std::atomic<std::uint32_t>& stripe) {
  stripe.fetch_and(~kStopped, std::memory_order_release);
}

}  // namespace

void enter_poll(const void* cq) {
  std::atomic<std::uint32_t>& stripe = stripe_of(cq);
  while ((stripe.fetch_add(1, std::memory_order_acquire) & kStopped) != 0) {
    stripe.fetch_sub(1, std::memory_order_relaxed);
    yield();
  }
}

void leave_poll(const void* cq) { stripe_of(cq).fetch_sub(1, std::memory_order_release); }

StoppedPolls::StoppedPolls(const void* first, const void* second)
    : stripes_{&stripe_of(first), &stripe_of(second)} {
  // In one order, so that two that stop the same CQs do not wait for each other.
  if (stripes_[1] < stripes_[0]) std::swap(stripes_[0], stripes_[1]);
  if (stripes_[0] == stripes_[1]) stripes_[1] = nullptr;
  const std::int64_t deadline = now_ns() + kPatienceNs;
  if (!stop(*stripes_[0], deadline)) return;
  if (stripes_[1] != nullptr && !stop(*stripes_[1], deadline)) {
    restart(*stripes_[0]);
    return;
  }
  is_stopped_ = true;
}

StoppedPolls::~StoppedPolls() {
  if (!is_stopped_) return;
  restart(*stripes_[0]);
  if (stripes_[1] != nullptr) restart(*stripes_[1]);
}

void forget_polls_after_fork() {
  for (Stripe& stripe : stripes) stripe.word.store(0, std::memory_order_relaxed);
}

}  // namespace rocemu::shim
