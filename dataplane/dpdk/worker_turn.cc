// The turn, from the top as the list of the worker's duties: jobs, doorbells, input, deadlines,
// output, events. Each duty is bounded a turn, so that no device and no client holds up the others.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>

#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/sigbus_guard.h"
#include "dataplane/dpdk/worker_impl.h"
#include "dataplane/wire/neighbour.h"
#include "dataplane/wire/packet.h"

namespace rocemu::dpdk {
namespace {

constexpr Duration kLinkInterval = milliseconds(10);
/// How long a context that rings nothing is looked at each turn.
constexpr Duration kActiveFor = milliseconds(1);
/// While the worker is busy it looks so often for contexts that ring by their descriptor.
constexpr Duration kInactiveInterval = microseconds(10);
constexpr std::size_t kMaxLateNotifications = 65536;

void pin_to(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

// The process's signals are control's; only those that a fault of this thread raises stay.
void block_signals() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
    ::sigdelset(&set, fault);
  }
  ::pthread_sigmask(SIG_SETMASK, &set, nullptr);
}

}  // namespace

void Worker::Impl::run_loop() {
  block_signals();
  pin_to(config.cpu);
  register_thread();
  // The kernel may not stretch short sleeps by its default 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  ::pthread_setname_np(::pthread_self(), "rocemu-worker");
  now = idle_since = read_clock();
  poll_interval = kFirstPollInterval;
  // acquire: pairs with stop()'s release.
  while (!is_stopping.load(std::memory_order_acquire)) {
    const Time begin = now;
    const bool has_worked = turn();
    now = read_clock();
    bump(stats.turns);
    if (has_worked) {
      const auto spent = static_cast<std::uint64_t>((now - begin).ns);
      bump(stats.busy_ns, spent);
      if (spent > stats.max_turn_ns) bump(stats.max_turn_ns, spent - stats.max_turn_ns);
      idle_since = now;
      poll_interval = kFirstPollInterval;
    } else {
      bump(stats.idle_turns);
      if (now - idle_since >= config.spin_before_sleep) {
        sleep();
        now = read_clock();
      }
    }
  }
  (void)run_jobs();
}

bool Worker::Impl::turn() {
  bool has_worked = run_jobs();
  if (has_worked || now - links_watched_at >= kLinkInterval) watch_links();
  const bool has_quiet_sources = contexts.size() > active.size() || has_host_links;
  if (has_quiet_sources && now - inactive_looked_at >= kInactiveInterval) {
    look_at_inactive_contexts();
    inactive_looked_at = now;
  }
  has_worked |= drain_doorbells();
  for (std::size_t i = 0; i < devices.size(); ++i) has_worked |= receive(i);
  for (Device& device : devices) has_worked |= forward_from_host(device);
  for (Device& device : devices) {
    const auto deadline = device.engine->next_deadline();
    if (!deadline || *deadline > now) continue;
    device.engine->on_deadline(now);
    has_worked = true;
  }
  for (Device& device : devices) {
    has_worked |= transmit(device);
    count_discards(device);
  }
  deliver_events();
  report_faults();
  hand_over_notifications();
  return has_worked;
}

bool Worker::Impl::run_jobs() {
  bool has_run = false;
  while (const auto job = jobs.try_pop()) {
    job->invoke(job->arg);
    jobs_done.fetch_add(1, std::memory_order_release);  // pairs with run_job's acquire
    jobs_done.notify_one();
    has_run = true;
  }
  return has_run;
}

bool Worker::Impl::drain_doorbells() {
  bool has_rung = false;
  for (std::size_t i = 0; i < active.size();) {
    Context& context = *active[i];
    if (context.doorbells.has_work()) {
      drain(context);
      has_rung = true;
    } else if (now - context.rung_at >= kActiveFor && context.doorbells.try_sleep()) {
      context.is_active = false;
      active[i] = active.back();
      active.pop_back();
      continue;
    }
    ++i;
  }
  return has_rung;
}

void Worker::Impl::drain(Context& context) {
  rung.clear();
  context.doorbells.drain(rung);
  context.rung_at = now;
  Device& device = devices[context.device];
  if (rung.sweeps != 0) device.counters->add(Counter::doorbell_sweeps, rung.sweeps);
  if (rung.nonsense != 0) device.counters->add(Counter::client_ring_errors, rung.nonsense);
  device.engine->on_doorbells(now, rung.qps);
  for (const CqIndex cq : rung.cqs) device.engine->on_cq_armed(now, cq);
}

bool Worker::Impl::receive(std::size_t index) {
  Device& device = devices[index];
  const std::size_t count = device.port->receive(burst);
  if (count == 0) return false;
  const auto frames = std::span(burst).first(count);
  // Runs of RoCE frames go to the engine together; others leave the data plane here.
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    const bool is_other =
        i < count && wire::classify_frame(frames[i].bytes()) == wire::FrameClass::kOther;
    if (i < count && !is_other) continue;
    if (i > begin) device.engine->on_frames(now, frames.subspan(begin, i - begin));
    if (is_other) leave_data_plane(index, frames[i].bytes());
    begin = i + 1;
  }
  device.port->release_received(frames);
  return true;
}

// With a netdev the kernel is who such frames are for; control only learns neighbours from them.
void Worker::Impl::leave_data_plane(std::size_t index, std::span<const std::byte> frame) {
  HostLink* host = devices[index].host.get();
  if (host != nullptr) {
    host->deliver(frame);
    bump(stats.system_calls);
    if (!wire::parse_neighbour(frame)) return;
  }
  punt(index, frame);
}

bool Worker::Impl::forward_from_host(Device& device) {
  if (!device.host || !device.host->has_input()) return false;
  std::size_t sent = 0;
  bump(stats.system_calls, device.host->forward(*device.port, config.burst, sent));
  return sent != 0;
}

void Worker::Impl::punt(std::size_t index, std::span<const std::byte> frame) {
  CounterBlock& counters = *devices[index].counters;
  if (frame.size() > kMaxPuntedBytes ||
      !punted.try_push(PuntedFrame{index, {frame.begin(), frame.end()}})) {
    counters.add(DropReason::not_roce);
    counters.add(Counter::port_rcv_errors);
    return;
  }
  counters.add(Counter::punted_frames);
  is_notification_due = true;
}

bool Worker::Impl::transmit(Device& device) {
  const std::uint64_t waits = device.counters->get(Counter::port_xmit_wait);
  bool has_sent = false;
  if (device.engine->has_transmit_work()) {
    has_sent = device.engine->poll_transmit(now, *device.port, config.transmit_budget) != 0;
  }
  device.is_flush_due = !device.port->flush();
  // The engine counts a turn in which the port gave it no buffer; that is the same wait.
  if (device.is_flush_due && device.counters->get(Counter::port_xmit_wait) == waits) {
    device.counters->add(Counter::port_xmit_wait);
  }
  return has_sent;
}

void Worker::Impl::count_discards(Device& device) {
  const PortDiscards discards = device.port->take_discards();
  if (discards.sent != 0) device.counters->add(Counter::port_xmit_discards, discards.sent);
  const std::uint64_t received = discards.received_down + discards.received_too_long;
  if (received == 0) return;
  device.counters->add(DropReason::link_down, discards.received_down);
  device.counters->add(DropReason::bad_payload_length, discards.received_too_long);
  device.counters->add(Counter::port_rcv_errors, received);
}

void Worker::Impl::deliver_events() {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EventOutbox& outbox = *devices[i].outbox;
    if (outbox.has_due() || outbox.next_retry() <= now) {
      bump(stats.system_calls, outbox.deliver(now));
    }
    for (const auto& event : outbox.async_events()) notify(DeviceAsyncEvent{i, event});
    outbox.async_events().clear();
  }
}

void Worker::Impl::watch_links() {
  links_watched_at = now;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Device& device = devices[i];
    const bool is_up = device.port->is_link_up();
    if (is_up == device.was_link_up) continue;
    device.was_link_up = is_up;
    device.engine->set_link_up(now, is_up);
    notify(LinkChange{i, is_up});
  }
}

void Worker::Impl::report_faults() {
  const std::uint64_t faults = fault_count();
  if (faults == seen_faults) return;
  seen_faults = faults;
  for (auto& [id, context] : contexts) {
    if (context->is_fault_reported || !is_faulted(id)) continue;
    context->is_fault_reported = true;
    notify(ContextFault{ContextId{id}});
  }
}

void Worker::Impl::notify(Notification&& notification) {
  is_notification_due = true;
  if (late_notifications.empty() && notifications.try_push(std::move(notification))) return;
  // Control is far behind; beyond the limit an event is lost, as one of a full queue on hardware.
  if (late_notifications.size() < kMaxLateNotifications) {
    late_notifications.push_back(std::move(notification));
  }
}

void Worker::Impl::hand_over_notifications() {
  while (!late_notifications.empty() &&
         notifications.try_push(std::move(late_notifications.front()))) {
    late_notifications.pop_front();
    is_notification_due = true;
  }
  if (!is_notification_due) return;
  is_notification_due = false;
  bump(stats.system_calls);
  bump(stats.wakeups_sent);
  signal_fd(notification_fd);
}

}  // namespace rocemu::dpdk
