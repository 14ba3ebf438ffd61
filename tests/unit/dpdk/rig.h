// A worker with two devices on a wire, and the client's side of a context on it: rings, doorbell
// page, completion channel. Its queue pairs are in the error state, so that each work request comes
// back as one flushed completion: the whole way of a doorbell without a peer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dataplane/dpdk/worker.h"
#include "dataplane/fabric/wire.h"
#include "dataplane/memory/mr_table.h"
#include "dataplane/memory/plain_port.h"

namespace rocemu::dpdk::test {

inline constexpr wire::MacAddress kMacA = {2, 0, 0, 0, 0, 1};
inline constexpr wire::MacAddress kMacB = {2, 0, 0, 0, 0, 2};

/// An Ethernet frame that is not RoCE, `bytes` long.
std::vector<std::byte> other_frame(const wire::MacAddress& to, std::size_t bytes = 60);

class Rig {
 public:
  explicit Rig(const WorkerConfig& config = {});
  ~Rig();

  std::uint64_t stat(const std::uint64_t& value) const {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
  }
  /// The next notification of a type, others dropped; waits 20 s at most.
  template <typename T>
  std::optional<T> await() {
    while (wait_for_notification()) {
      while (auto n = worker->next_notification()) {
        if (auto* found = std::get_if<T>(&*n)) return std::move(*found);
      }
    }
    return std::nullopt;
  }

  fabric::Wire wire;
  memory::PlainPort memory;
  memory::MrTable regions{16, Prng(1)};
  std::array<CounterBlock, 2> counters;
  WorkerBlock stats;
  std::unique_ptr<Worker> worker;

 private:
  bool wait_for_notification();
};

/// One client of device 0. All calls from one thread, and post(), await_completion() from another
/// one, too.
class Client {
 public:
  static constexpr std::uint32_t kEntries = 64;
  static constexpr std::size_t kRingBytes = 1 << 20;

  /// `slot`: of its one QP and CQ. `ring_memory`: kRingBytes, zeroed.
  Client(Rig& rig, ContextId id, std::uint32_t slot, std::span<std::byte> ring_memory);
  ~Client();

  /// Publishes one work request and rings.
  void post();
  void arm();
  /// Takes one completion off the CQ if there is one.
  bool poll();
  /// Waits for a completion event at the pipe, 20 s at most.
  bool await_event();

  int pipe_ends[2] = {-1, -1};
  int wake_fd = -1;
  std::unique_ptr<DoorbellPage> page;

 private:
  std::byte* at(const transport::RingRef& ring) { return memory_.data() + ring.offset; }

  Rig& rig_;
  ContextId id_;
  std::uint32_t slot_;
  std::span<std::byte> memory_;
  RegionId region_;
  RegionId page_region_;
  transport::RingRef send_ring_;
  transport::RingRef recv_ring_;
  transport::RingRef cq_ring_;
  CqIndex cq_;
  QpNum qp_;
  std::uint32_t producer_ = 0;
  std::uint32_t consumer_ = 0;
};

}  // namespace rocemu::dpdk::test
