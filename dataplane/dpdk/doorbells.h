// The worker's half of the doorbell page (include/rocemu/abi/doorbell.h) for one context: drains
// entries, checks that each belongs to the context, and holds the sleep handshake. All that the
// page holds is the client's to write: counted, masked, never believed.
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
    std::uint64_t sweeps = 0;
    void clear() {
      qps.clear();
      cqs.clear();
    }
    bool is_empty() const { return qps.empty() && cqs.empty(); }
  };
  /// Takes what was rung, at most one ring full. Adds to `out`.
  void drain(Rung& out);

  /// Something waits to be drained.
  bool has_work() const;
  /// Publishes that the worker sleeps; true when it may: nothing was rung meanwhile. False takes it
  /// back.
  bool try_sleep();
  /// The worker looks at this context again.
  void wake();

 private:
  void take(std::uint32_t entry, Rung& out);
  void sweep(Rung& out);

  DoorbellPage* page_;
  std::uint32_t consumer_ = 0;
  std::vector<QpNum> qps_;
  std::vector<CqIndex> cqs_;
};

}  // namespace rocemu::dpdk
