// The order of loads and stores is that of doorbell.h; what each pairs with stands beside it.
#include "dataplane/dpdk/doorbells.h"

#include <algorithm>
#include <utility>

#include "rocemu/base/check.h"

namespace rocemu::dpdk {
namespace {

constexpr std::uint32_t kRingMask = kDoorbellRingSize - 1;

}  // namespace

void Doorbells::bind_qp(std::uint32_t slot, QpNum qp) {
  ROCEMU_CHECK(slot < kMaxQpSlots);
  if (slot >= qps_.size()) qps_.resize(slot + 1);
  qps_[slot] = qp;
  // A doorbell of the slot's former QP may have been left behind.
  page_->qp_pending[slot].store(0, std::memory_order_release);
}

void Doorbells::unbind_qp(std::uint32_t slot) {
  if (slot < qps_.size()) qps_[slot] = QpNum::none();
}

void Doorbells::bind_cq(std::uint32_t slot, CqIndex cq) {
  ROCEMU_CHECK(slot < kMaxCqSlots);
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
    // release: pairs with the client's acquire, before it writes the place again.
    page_->consumer.store(++consumer_, std::memory_order_release);
    take(entry - 1, out);
  }
  sweep(out);
}

void Doorbells::take(std::uint32_t entry, Rung& out) {
  const bool is_cq = (entry & kArmCqFlag) != 0;
  const std::uint32_t slot = entry & ~kArmCqFlag;
  if (slot >= (is_cq ? cqs_.size() : qps_.size())) {
    ++out.nonsense;  // the slot was never handed out
  } else if (!is_cq) {
    take_pending_qp(slot, out);
  } else if (!cqs_[slot].is_none()) {
    out.cqs.push_back(cqs_[slot]);
  }
}

void Doorbells::take_pending_qp(std::uint32_t slot, Rung& out) {
  // acq_rel, and an exchange: the byte is 0 before the QP's ring is read (doorbell.h).
  page_->qp_pending[slot].exchange(0, std::memory_order_acq_rel);
  if (!qps_[slot].is_none()) out.qps.push_back(qps_[slot]);
}

std::uint32_t Doorbells::slot_count() const {
  return static_cast<std::uint32_t>(std::max(qps_.size(), cqs_.size()));
}

// The ring was full once: looks at every QP and CQ of this context and of no other, a piece a call,
// so that a client with very many holds up itself only. A flag that is set again meanwhile starts
// another sweep when this one is done.
void Doorbells::sweep(Rung& out) {
  if (!is_sweeping_) {
    if (page_->sweep.load(std::memory_order_relaxed) == 0) return;
    // acq_rel: pairs with the client's store, and comes before the looks below.
    if (page_->sweep.exchange(0, std::memory_order_acq_rel) == 0) return;
    is_sweeping_ = true;
    sweep_next_ = 0;
    ++out.sweeps;
  }
  const std::uint32_t end = std::min(slot_count(), sweep_next_ + kSweepSlots);
  for (std::uint32_t slot = sweep_next_; slot < end; ++slot) {
    if (slot < qps_.size() && page_->qp_pending[slot].load(std::memory_order_acquire) != 0) {
      take_pending_qp(slot, out);
    }
    if (slot < cqs_.size() && !cqs_[slot].is_none() &&
        page_->cq_arm[slot].load(std::memory_order_acquire) != kDisarmed) {
      out.cqs.push_back(cqs_[slot]);
    }
  }
  sweep_next_ = end;
  is_sweeping_ = end < slot_count();
}

bool Doorbells::has_work() const {
  return is_sweeping_ ||
         page_->entries[consumer_ & kRingMask].load(std::memory_order_acquire) != 0 ||
         page_->sweep.load(std::memory_order_acquire) != 0;
}

bool Doorbells::try_sleep() {
  publish_asleep();
  // Store, then load: orders kAsleep before the second look; pairs with the client's seq_cst store
  // of its entry and its load of the state.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_work()) return true;
  wake();
  return false;
}

}  // namespace rocemu::dpdk
