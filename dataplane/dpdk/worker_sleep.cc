// How the worker sleeps. Where cores are short a spinning or yielding worker takes its clients'
// time slices; one that blocks is woken in microseconds. Before it blocks it arms every context it
// watched, then looks at everything once more: whoever rings after that look sees it asleep and
// writes an eventfd.
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "dataplane/dpdk/worker_impl.h"

namespace rocemu::dpdk {
namespace {

constexpr Duration kBlockedPipeRetry = milliseconds(1);

timespec to_timespec(Duration d) {
  const std::int64_t ns = std::max<std::int64_t>(d.ns, 0);
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

}  // namespace

// When the worker must look again although nobody wakes it.
Time Worker::Impl::wake_time() {
  Time wake = Time::never();
  for (Device& device : devices) {
    if (const auto deadline = device.engine->next_deadline()) wake = std::min(wake, *deadline);
    if (device.outbox->is_blocked()) wake = std::min(wake, now + kBlockedPipeRetry);
    if (device.engine->has_transmit_work()) wake = std::min(wake, now + microseconds(10));
  }
  if (needs_polling) {
    wake = std::min(wake, now + poll_interval);
    poll_interval = std::min(poll_interval * 2, config.max_poll_interval);
  }
  return wake;
}

// True when everything is armed and quiet.
bool Worker::Impl::try_arm() {
  is_asleep.store(1, std::memory_order_relaxed);
  // Store, then load: pairs with the fence in run_erased.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool is_quiet = jobs.is_empty() && !is_stopping.load(std::memory_order_acquire);
  for (const Device& device : devices) is_quiet = is_quiet && !device.port->has_input();
  std::erase_if(active, [&](Context* context) {
    if (!is_quiet) return false;
    if (!context->doorbells.try_sleep()) {
      is_quiet = false;
      return false;
    }
    context->is_active = false;
    return true;
  });
  return is_quiet;
}

void Worker::Impl::sleep() {
  if (try_arm()) {
    std::array<epoll_event, 64> events;
    const Time wake = wake_time();
    const timespec timeout = to_timespec(wake - now);
    ++stats.sleeps;
    ++stats.system_calls;
    const int count = ::epoll_pwait2(epoll_fd, events.data(), static_cast<int>(events.size()),
                                     wake.is_never() ? nullptr : &timeout, nullptr);
    for (int i = 0; i < count; ++i) {
      auto* context = static_cast<Context*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (context != nullptr) activate(*context);
    }
  }
  is_asleep.store(0, std::memory_order_relaxed);
}

}  // namespace rocemu::dpdk
