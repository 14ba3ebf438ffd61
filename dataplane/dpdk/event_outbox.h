// One device's events on their way out: completion events into the pipes of their channels,
// asynchronous ones to control. The engine queues them in the middle of a turn; the worker delivers
// at its end. A full pipe keeps its events here, as one number a CQ, until it is read: a client
// that reads nothing costs a bounded number of retries and no memory. The worker's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "dataplane/dpdk/worker.h"
#include "dataplane/engine/engine.h"

namespace rocemu::dpdk {

class EventOutbox final : public engine::EventSink {
 public:
  void on_completion_event(CqIndex cq) override { due_.push_back(cq); }
  void on_async_event(const engine::AsyncEvent& event) override { async_.push_back(event); }

  void bind(CqIndex cq, const CompletionTarget& target);
  /// Returns how many events went into the channel since bind().
  std::uint64_t unbind(CqIndex cq);

  /// Writes what can be written. Returns the number of system calls made, bounded by the events
  /// that are new and kRetryWrites.
  std::uint64_t deliver(Time now);
  static constexpr std::uint32_t kRetryWrites = 256;
  static constexpr Duration kRetryInterval = milliseconds(1);

  bool has_due() const { return !due_.empty(); }
  /// When full pipes are tried again; never() when none is full.
  Time next_retry() const { return blocked_.empty() ? Time::never() : retry_at_; }

  std::vector<engine::AsyncEvent>& async_events() { return async_; }

 private:
  /// A CQ and where its events go.
  struct Target {
    CompletionTarget to;
    std::uint64_t delivered = 0;
    std::uint64_t waiting = 0;  ///< Events that found the pipe full; in the channel's line if any.
  };
  /// A pipe, shared by the CQs of one completion channel.
  struct Channel {
    std::uint32_t users = 0;
    std::deque<CqIndex> line;  ///< CQs with events that wait; not empty: the pipe was full.
  };
  enum class Outcome : std::uint8_t { kWritten, kFull, kGone };

  Outcome write_event(Target& target);
  void post(CqIndex cq, std::uint64_t& calls);
  std::uint64_t retry(Time now);
  /// False when the pipe is still full.
  bool drain_line(Channel& channel, std::uint64_t& calls);

  std::vector<Target> targets_;  ///< By CqIndex.
  std::unordered_map<int, Channel> channels_;
  std::vector<CqIndex> due_;
  std::deque<int> blocked_;  ///< Channels with a line, in the order of their turns.
  Time retry_at_;
  std::vector<engine::AsyncEvent> async_;
};

}  // namespace rocemu::dpdk
