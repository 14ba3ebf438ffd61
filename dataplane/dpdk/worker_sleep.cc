// How the worker sleeps. Where cores are short a spinning or yielding worker takes its clients'
// time slices; one that blocks is woken in microseconds. Before it blocks it tells every context
// that it watches, then looks at everything once more: whoever rings after that look sees it asleep
// and writes an eventfd. Contexts that rang nothing for a while are told once and watched no more;
// their eventfd is looked at while the worker is busy, too.
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "dataplane/dpdk/worker_impl.h"

namespace rocemu::dpdk {
namespace {

constexpr std::size_t kMaxWakeups = 64;  // the rest comes at the next look
constexpr Duration kFullLinkInterval = microseconds(10);
/// A port with an interrupt does not wake the worker when its link changes.
constexpr Duration kLinkInterval = milliseconds(50);
constexpr Duration kLateInterval = milliseconds(1);

timespec to_timespec(Duration d) { return {d.ns / 1'000'000'000, d.ns % 1'000'000'000}; }

// As epoll_pwait2, where the kernel has it, else by two calls. Null: no limit.
int wait_for_events(int epoll_fd, std::span<epoll_event> events, const timespec* timeout) {
  static bool has_pwait2 = true;
  const auto room = static_cast<int>(events.size());
  if (has_pwait2) {
    const int count = ::epoll_pwait2(epoll_fd, events.data(), room, timeout, nullptr);
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    has_pwait2 = false;
  }
  pollfd readable{.fd = epoll_fd, .events = POLLIN, .revents = 0};
  if (::ppoll(&readable, 1, timeout, nullptr) <= 0) return 0;
  return ::epoll_wait(epoll_fd, events.data(), room, 0);
}

}  // namespace

void Worker::Impl::sleep() {
  is_asleep.store(1, std::memory_order_relaxed);
  for (Context* context : active) context->doorbells.publish_asleep();
  for (Device& device : devices) device.port->arm_interrupt();
  // Store, then load: orders both kinds of "asleep" before the looks of is_quiet(); pairs with the
  // fence in run_job() and with the clients' seq_cst stores and loads (doorbell.h).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_quiet()) block();
  for (Device& device : devices) device.port->disarm_interrupt();
  for (Context* context : active) context->doorbells.wake();
  is_asleep.store(0, std::memory_order_relaxed);
}

bool Worker::Impl::is_quiet() {
  if (!jobs.is_empty() || is_stopping.load(std::memory_order_acquire)) return false;
  for (const Context* context : active) {
    if (context->doorbells.has_work()) return false;
  }
  for (const Device& device : devices) {
    if (device.port->has_input()) return false;
  }
  return !receive_at_interrupt_ports();
}

// Frames that came between the last look and the arming of the interrupt raise none.
bool Worker::Impl::receive_at_interrupt_ports() {
  bool has_received = false;
  if (!has_interrupts) return false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].port->interrupt_fd() >= 0) has_received |= receive(i);
  }
  return has_received;
}

// When the worker must look again although nobody wakes it.
Time Worker::Impl::wake_time() const {
  Time wake = Time::never();
  for (const Device& device : devices) {
    if (const auto deadline = device.engine->next_deadline()) wake = std::min(wake, *deadline);
    wake = std::min(wake, device.outbox->next_retry());
    const bool is_host_waiting = device.host && device.host->has_input();
    if (device.is_flush_due || is_host_waiting || device.engine->has_transmit_work()) {
      wake = std::min(wake, now + kFullLinkInterval);
    }
  }
  if (needs_polling) wake = std::min(wake, now + poll_interval);
  if (has_interrupts) wake = std::min(wake, now + kLinkInterval);
  if (!late_notifications.empty()) wake = std::min(wake, now + kLateInterval);
  return wake;
}

void Worker::Impl::block() {
  const Time wake = wake_time();
  if (wake <= now) return;
  const timespec timeout = to_timespec(wake - now);
  std::array<epoll_event, kMaxWakeups> events;
  bump(stats.sleeps);
  bump(stats.system_calls);
  const int count = wait_for_events(epoll_fd, events, wake.is_never() ? nullptr : &timeout);
  poll_interval = std::min(poll_interval * 2, config.max_poll_interval);
  if (count > 0) take_wakeups(std::span(events).first(static_cast<std::size_t>(count)));
}

void Worker::Impl::look_at_inactive_contexts() {
  std::array<epoll_event, kMaxWakeups> events;
  const int count = ::epoll_wait(epoll_fd, events.data(), static_cast<int>(events.size()), 0);
  bump(stats.system_calls);
  if (count > 0) take_wakeups(std::span(events).first(static_cast<std::size_t>(count)));
}

// Null stands for the job's descriptor and the ports' interrupts, where the turn looks anyway, and
// for the netdevs.
void Worker::Impl::take_wakeups(std::span<const epoll_event> events) {
  for (const epoll_event& event : events) {
    if (event.data.ptr != nullptr) {
      activate(*static_cast<Context*>(event.data.ptr));
    } else {
      poll_interval = kFirstPollInterval;
      for (Device& device : devices) {
        if (device.host) device.host->look_again();
      }
    }
  }
}

void Worker::Impl::activate(Context& context) {
  context.rung_at = now;
  if (context.is_active) return;
  context.is_active = true;
  context.doorbells.wake();
  active.push_back(&context);
}

}  // namespace rocemu::dpdk
