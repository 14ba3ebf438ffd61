// The worker's insides: set-up and the calls of control (worker.cc), the turn (worker_turn.cc), the
// sleep (worker_sleep.cc). All members belong to the worker's thread, or to control before it
// starts, except the rings and the atomics at the end.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dataplane/dpdk/doorbells.h"
#include "dataplane/dpdk/event_outbox.h"
#include "dataplane/dpdk/host_link.h"
#include "dataplane/dpdk/worker.h"
#include "rocemu/base/spsc_ring.h"

namespace rocemu::dpdk {

inline constexpr std::size_t kMaxBurst = 256;
/// How soon a port without interrupt is looked at again after it had something.
inline constexpr Duration kFirstPollInterval = microseconds(10);
inline constexpr std::uint32_t kMaxContexts = 8192;  ///< Two guarded ranges each (sigbus_guard.h).

class CapturePort;

struct Device {
  std::unique_ptr<Port> port;
  std::unique_ptr<EventOutbox> outbox;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<HostLink> host;  ///< Null: the device has no netdev.
  CounterBlock* counters = nullptr;
  CapturePort* capture = nullptr;  ///< `port` itself while a capture runs.
  bool was_link_up = true;         ///< As control and the engine believe at first.
  bool is_flush_due = false;       ///< Frames wait at the port.
};

struct Context {
  Context(ContextId context_id, std::size_t device_index, DoorbellPage* page, int fd)
      : id(context_id), device(device_index), doorbells(page), wake_fd(fd) {}
  ContextId id;
  std::size_t device;
  Doorbells doorbells;
  int wake_fd;
  Time rung_at;            ///< When it last had work.
  bool is_active = false;  ///< Looked at each turn; else it says "asleep" and writes wake_fd.
  bool is_fault_reported = false;
};

struct Job {
  void (*invoke)(void*) = nullptr;
  void* arg = nullptr;
};

struct Worker::Impl {
  Impl(const WorkerConfig& worker_config, WorkerBlock& block);
  ~Impl();

  void start();
  void stop();
  void run_job(void (*invoke)(void*), void* arg);

  void run_loop();
  /// One turn; true when there was work.
  bool turn();
  bool run_jobs();
  bool drain_doorbells();
  void drain(Context& context);
  bool receive(std::size_t index);
  void leave_data_plane(std::size_t index, std::span<const std::byte> frame);
  void punt(std::size_t index, std::span<const std::byte> frame);
  bool forward_from_host(Device& device);
  bool transmit(Device& device);
  void deliver_events();
  void count_discards(Device& device);
  void watch_links();
  void report_faults();
  void notify(Notification&& notification);
  void hand_over_notifications();

  void sleep();
  bool is_quiet();
  bool receive_at_interrupt_ports();
  Time wake_time() const;
  void block();
  void look_at_inactive_contexts();
  void take_wakeups(std::span<const epoll_event> events);
  void activate(Context& context);

  WorkerConfig config;
  WorkerBlock& stats;
  engine::RxeQueues queues;
  std::vector<Device> devices;
  std::unordered_map<std::uint32_t, std::unique_ptr<Context>> contexts;
  std::vector<Context*> active;
  Doorbells::Rung rung;
  std::vector<engine::RxFrame> burst;
  Time now;
  Time idle_since;
  Time links_watched_at;
  Time inactive_looked_at;
  Duration poll_interval;
  std::uint64_t seen_faults = 0;
  bool needs_polling = false;
  bool has_interrupts = false;
  bool has_host_links = false;
  std::deque<Notification> late_notifications;  ///< The ring was full.
  bool is_notification_due = false;             ///< Control is to be woken at the end of the turn.

  SpscRing<Job> jobs{64};            ///< Control to worker.
  std::uint32_t jobs_submitted = 0;  ///< Control's own.
  std::atomic<std::uint32_t> jobs_done{0};
  SpscRing<Notification> notifications{4096};  ///< Worker to control.
  SpscRing<Notification> punted{1024};         ///< Apart: what the wire sends displaces no event.
  int epoll_fd = -1;
  int job_fd = -1;
  int notification_fd = -1;
  std::atomic<std::uint32_t> is_asleep{0};
  std::atomic<bool> is_stopping{false};
  std::thread thread;
};

/// Wakes whoever waits at an eventfd.
void signal_fd(int fd);
/// The worker's clock.
Time read_clock();

/// Adds to a statistic that other processes read: one writer, whole stores.
inline void bump(std::uint64_t& statistic, std::uint64_t n = 1) {
  __atomic_store_n(&statistic, statistic + n, __ATOMIC_RELAXED);
}

}  // namespace rocemu::dpdk
