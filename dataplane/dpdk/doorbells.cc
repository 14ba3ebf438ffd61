#include "dataplane/dpdk/doorbells.h"

#include <algorithm>
#include <utility>

namespace rocemu::dpdk {
namespace {

constexpr std::uint32_t kRingMask = kDoorbellRingSize - 1;

}  // namespace

void Doorbells::bind_qp(std::uint32_t slot, QpNum qp) {
  if (slot >= qps_.size()) qps_.resize(slot + 1);
  qps_[slot] = qp;
  page_->qp_pending[slot].store(0, std::memory_order_release);
}

void Doorbells::unbind_qp(std::uint32_t slot) {
  if (slot < qps_.size()) qps_[slot] = QpNum::none();
}

void Doorbells::bind_cq(std::uint32_t slot, CqIndex cq) {
  if (slot >= cqs_.size()) cqs_.resize(slot + 1);
  cqs_[slot] = cq;
}

CqIndex Doorbells::unbind_cq(std::uint32_t slot) {
  return slot < cqs_.size() ? std::exchange(cqs_[slot], CqIndex::none()) : CqIndex::none();
}

void Doorbells::drain(Rung& out) {
  for (std::uint32_t n = 0; n < kDoorbellRingSize; ++n) {
    auto& place = page_->entries[consumer_ & kRingMask];
    // acquire: pairs with the client's store of the entry.
    const std::uint32_t entry = place.load(std::memory_order_acquire);
    if (entry == 0) break;  // empty, or claimed and not yet written: its client will ring
    place.store(0, std::memory_order_relaxed);
    page_->consumer.store(++consumer_,
                          std::memory_order_release);  // pairs with the client's acquire
    take(entry - 1, out);
  }
  if (page_->sweep.load(std::memory_order_relaxed) != 0 &&
      page_->sweep.exchange(0, std::memory_order_acq_rel) != 0) {
    sweep(out);
  }
}

void Doorbells::take(std::uint32_t entry, Rung& out) {
  if ((entry & kArmCqFlag) != 0) {
    const std::uint32_t slot = entry & ~kArmCqFlag;
    if (slot < cqs_.size() && !cqs_[slot].is_none()) out.cqs.push_back(cqs_[slot]);
    return;
  }
  if (entry >= qps_.size()) return;
  // An exchange, before the QP's ring is read (doorbell.h).
  page_->qp_pending[entry].exchange(0, std::memory_order_acq_rel);
  if (!qps_[entry].is_none()) out.qps.push_back(qps_[entry]);
}

// The ring was full once: looks at every QP and CQ of this context, and of no other.
void Doorbells::sweep(Rung& out) {
  ++out.sweeps;
  for (std::uint32_t slot = 0; slot < qps_.size(); ++slot) {
    if (page_->qp_pending[slot].load(std::memory_order_acquire) == 0) continue;
    page_->qp_pending[slot].exchange(0, std::memory_order_acq_rel);
    if (!qps_[slot].is_none()) out.qps.push_back(qps_[slot]);
  }
  for (std::uint32_t slot = 0; slot < cqs_.size(); ++slot) {
    if (cqs_[slot].is_none()) continue;
    if (page_->cq_arm[slot].load(std::memory_order_acquire) != kDisarmed)
      out.cqs.push_back(cqs_[slot]);
  }
}

bool Doorbells::has_work() const {
  return page_->entries[consumer_ & kRingMask].load(std::memory_order_acquire) != 0 ||
         page_->sweep.load(std::memory_order_acquire) != 0;
}

bool Doorbells::try_sleep() {
  page_->worker_state.store(kAsleep, std::memory_order_relaxed);
  // Store, then load: orders kAsleep before the second look; pairs with the client's seq_cst store
  // of its entry.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_work()) return true;
  wake();
  return false;
}

void Doorbells::wake() { page_->worker_state.store(kAwake, std::memory_order_release); }

}  // namespace rocemu::dpdk
