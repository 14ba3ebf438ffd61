// A worker: one thread that owns one shard of every device and turns it in real time: jobs of the
// control thread, doorbells, received bursts, deadlines, transmission, events; and it sleeps when
// none of these has work, woken by any of them. The only clock of the data plane is read here, once
// a turn. Everything that enters the kernel on behalf of the engines (event pipes, wake-ups)
// happens here, a bounded and counted number of times a turn.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/dpdk/capture.h"
#include "dataplane/dpdk/port.h"
#include "dataplane/engine/engine.h"
#include "dataplane/engine/rxe_queues.h"
#include "rocemu/abi/counters.h"
#include "rocemu/abi/doorbell.h"
#include "rocemu/base/ids.h"
#include "rocemu/base/prng.h"
#include "rocemu/base/result.h"
#include "rocemu/base/time.h"

namespace rocemu::dpdk {

struct WorkerConfig {
  std::uint32_t max_contexts = 4096;   ///< At most 8192.
  std::uint32_t transmit_budget = 64;  ///< Frames sent by an engine a turn.
  /// Frames received from a port a turn; 1 ... 256. Not less than transmit_budget: else the queue
  /// between two devices fills, and on a slow machine ACK timers expire for what waits in it.
  std::uint32_t burst = 64;
  Duration spin_before_sleep = microseconds(2);
  Duration max_poll_interval = milliseconds(1);  ///< Back-off limit for ports without an interrupt.
  int cpu = -1;                                  ///< Pin to this CPU; -1: not pinned.
};

/// A completion channel's write end (owned by control, O_NONBLOCK) and the 8 bytes that stand for
/// the CQ in it.
struct CompletionTarget {
  int pipe_fd = -1;  ///< -1: the CQ has no channel.
  std::uint64_t cookie = 0;
};

struct DeviceAsyncEvent {
  std::size_t device = 0;
  engine::AsyncEvent event;
};
/// A frame that is not RoCE, copied; at most kMaxPuntedBytes, longer ones are dropped and counted.
inline constexpr std::size_t kMaxPuntedBytes = 2048;
struct PuntedFrame {
  std::size_t device = 0;
  std::vector<std::byte> bytes;
};
struct LinkChange {
  std::size_t device = 0;
  bool is_up = false;
};
/// A client's ring memory turned out unusable (SIGBUS): end this context.
struct ContextFault {
  ContextId context;
};
using Notification = std::variant<DeviceAsyncEvent, PuntedFrame, LinkChange, ContextFault>;

class Worker {
 public:
  /// `stats` is this worker's block of the counters file.
  Worker(const WorkerConfig& config, WorkerBlock& stats);
  ~Worker();  ///< Stops the thread first.

  // Before start().

  /// Adds a device; the worker builds and owns its engine and its port. Returns its index (0, 1,
  /// ...).
  std::size_t add_device(std::unique_ptr<Port> port, const engine::EngineConfig& config,
                         memory::MemoryPort& memory, memory::MrTable& regions,
                         CounterBlock& counters, Prng prng);

  /// Gives the device a netdev: `tap_fd` as in host_link.h.
  void add_host_link(std::size_t device, int tap_fd);

  void start();
  void stop();

  // Control thread.

  /// Runs `job` on the worker's thread between two turns and returns what it returned. Everything
  /// below "owner's thread" is called from inside a job. When it returns, at least one whole turn
  /// boundary has passed: memory that no table names any more is quiet.
  template <typename Job>
  auto run(Job&& job) {
    using R = std::invoke_result_t<Job&>;
    if constexpr (std::is_void_v<R>) {
      run_erased([](void* arg) { (*static_cast<std::remove_reference_t<Job>*>(arg))(); }, &job);
    } else {
      std::optional<R> result;
      auto wrapped = [&] { result.emplace(job()); };
      run_erased([](void* arg) { (*static_cast<decltype(wrapped)*>(arg))(); }, &wrapped);
      return std::move(*result);
    }
  }

  /// Readable when notifications wait.
  int notification_fd() const;
  std::optional<Notification> next_notification();

  // Owner's thread: inside run(), or before start().

  engine::Engine& engine(std::size_t device);
  Port& port(std::size_t device);
  engine::RxeQueues& queues();
  Time now() const;

  /// Starts serving a context's doorbells. `page` and `rings` (the context memfd) stay mapped and
  /// `wake_fd` (an eventfd) open until remove_context. At most max_contexts.
  void add_context(ContextId context, std::size_t device, DoorbellPage* page, int wake_fd,
                   std::span<std::byte> rings);
  void remove_context(ContextId context);
  void bind_qp(ContextId context, std::uint32_t slot, QpNum qp);
  void unbind_qp(ContextId context, std::uint32_t slot);
  void bind_cq(ContextId context, std::uint32_t slot, CqIndex cq, const CompletionTarget& target);
  /// Forgets the CQ and its undelivered events. Returns how many events were written into its
  /// channel since bind_cq.
  std::uint64_t unbind_cq(ContextId context, std::uint32_t slot);
  /// Sends one frame as it is (ARP, ND). False when the link did not take it.
  bool send_raw(std::size_t device, std::span<const std::byte> frame);

  /// From here on the device's frames are recorded; port() then names another object. EBUSY while a
  /// capture runs; `capture` then stays the caller's.
  Result<void> start_capture(std::size_t device, std::unique_ptr<Capture>&& capture);
  bool is_capturing(std::size_t device) const;
  /// The running capture, to be destroyed outside run() (that writes what is left); null when none
  /// runs.
  std::unique_ptr<Capture> stop_capture(std::size_t device);

 private:
  void run_erased(void (*invoke)(void*), void* arg);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rocemu::dpdk
