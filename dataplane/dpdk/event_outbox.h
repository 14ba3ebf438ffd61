// One device's events on their way out: completion events into the pipes of their channels,
// asynchronous ones to control. The engine queues them in the middle of a turn; the worker delivers
// at its end. A full pipe keeps its events here, in order, until it is read.
#pragma once

#include <cstdint>
#include <deque>
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

  /// Writes what can be written. Returns the number of system calls made.
  std::uint64_t deliver();
  bool has_due() const { return !due_.empty(); }
  /// Events wait for a full pipe.
  bool is_blocked() const { return !blocked_.empty(); }

  std::vector<engine::AsyncEvent>& async_events() { return async_; }

 private:
  struct Target {
    CompletionTarget to;
    std::uint64_t delivered = 0;
  };
  enum class Outcome : std::uint8_t { kWritten, kFull, kGone };
  Outcome write_event(Target& target);

  std::vector<Target> targets_;  ///< By CqIndex.
  std::vector<CqIndex> due_;
  std::deque<CqIndex> blocked_;
  std::vector<engine::AsyncEvent> async_;
};

}  // namespace rocemu::dpdk
