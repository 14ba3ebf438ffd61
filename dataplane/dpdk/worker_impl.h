// The worker's insides: its turn (worker.cc) and its sleep (worker_sleep.cc).
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dataplane/dpdk/doorbells.h"
#include "dataplane/dpdk/event_outbox.h"
#include "dataplane/dpdk/worker.h"
#include "rocemu/base/spsc_ring.h"

namespace rocemu::dpdk {

inline constexpr std::size_t kMaxBurst = 256;

struct Device {
  std::unique_ptr<Port> port;
  std::unique_ptr<EventOutbox> outbox;
  std::unique_ptr<engine::Engine> engine;
  CounterBlock* counters = nullptr;
  bool was_link_up = true;
};

struct Context {
  Context(ContextId context_id, std::size_t device_index, DoorbellPage* page, int fd)
      : id(context_id), device(device_index), doorbells(page), wake_fd(fd) {}
  ContextId id;
  std::size_t device;
  Doorbells doorbells;
  int wake_fd;
  bool is_active = false;  ///< Looked at each turn; else armed to wake the worker.
  bool is_fault_reported = false;
};

struct Job {
  void (*invoke)(void*) = nullptr;
  void* arg = nullptr;
};

struct Worker::Impl {
  Impl(const WorkerConfig& worker_config, WorkerBlock& block);
  ~Impl();

  void run_loop();
  /// One turn; true when there was work.
  bool turn();
  bool run_jobs();
  bool drain_doorbells();
  bool receive(Device& device, std::size_t index);
  bool transmit(Device& device);
  void deliver_events();
  void watch_links();
  void report_faults();
  void notify(Notification&& notification);
  void activate(Context& context);

  void sleep();
  bool try_arm();
  Time wake_time();
  void stop();

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
  Duration poll_interval;
  std::uint64_t seen_faults = 0;
  bool needs_polling = false;

  SpscRing<Job> jobs{64};
  std::uint32_t jobs_submitted = 0;  ///< Control's own.
  std::atomic<std::uint32_t> jobs_done{0};
  SpscRing<Notification> notifications{4096};
  int epoll_fd = -1;
  int job_fd = -1;
  int notification_fd = -1;
  std::atomic<std::uint32_t> is_asleep{0};
  std::atomic<bool> is_stopping{false};
  std::thread thread;
};

}  // namespace rocemu::dpdk
