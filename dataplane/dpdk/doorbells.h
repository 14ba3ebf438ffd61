// The worker's half of the doorbell page (include/rocemu/abi/doorbell.h) for one context: drains
// entries, checks that each belongs to the context, and holds the sleep handshake. All that the
// page holds is the client's to write: counted, masked, never believed. The work of one drain() is
// bounded, whatever the page says. The worker's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "rocemu/abi/doorbell.h"
#include "rocemu/base/ids.h"

namespace rocemu::dpdk {

class Doorbells {
 public:
  explicit Doorbells(DoorbellPage* page) : page_(page) {}

  void bind_qp(std::uint32_t slot, QpNum qp);
  void unbind_qp(std::uint32_t slot);
  void bind_cq(std::uint32_t slot, CqIndex cq);
  CqIndex unbind_cq(std::uint32_t slot);

  struct Rung {
    std::vector<QpNum> qps;
    std::vector<CqIndex> cqs;
    std::uint32_t sweeps = 0;
    std::uint32_t nonsense = 0;  ///< Entries that no correct client writes.
    void clear() {
      qps.clear();
      cqs.clear();
      sweeps = nonsense = 0;
    }
  };
  /// Takes what was rung: at most one ring full of entries, and of a sweep at most kSweepSlots
  /// slots. Adds to `out`.
  void drain(Rung& out);
  static constexpr std::uint32_t kSweepSlots = 8192;

  /// Something waits to be drained.
  bool has_work() const;

  /// Publishes that the worker sleeps. The worker then issues a seq_cst fence and asks has_work()
  /// once more before it blocks.
  void publish_asleep() { page_->worker_state.store(kAsleep, std::memory_order_relaxed); }
  /// publish_asleep(), the fence and the second look. False: something was rung, and the worker is
  /// awake again.
  bool try_sleep();
  /// The worker looks at this context again.
  void wake() { page_->worker_state.store(kAwake, std::memory_order_release); }

 private:
  void take(std::uint32_t entry, Rung& out);
  void take_pending_qp(std::uint32_t slot, Rung& out);
  void sweep(Rung& out);
  std::uint32_t slot_count() const;

  DoorbellPage* page_;
  std::uint32_t consumer_ = 0;
  std::uint32_t sweep_next_ = 0;  ///< Slots below were looked at; meaningful while is_sweeping_.
  bool is_sweeping_ = false;
  std::vector<QpNum> qps_;
  std::vector<CqIndex> cqs_;
};

}  // namespace rocemu::dpdk
