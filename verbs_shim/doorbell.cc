// Ringing and waking. Two store-then-load races are decided here by sequential consistency, and
// both need the other side to keep its half: an entry is stored before worker_state is read (the
// worker stores kAsleep before it looks at the ring again), and a QP's pending byte is exchanged
// after its ring was written (the worker exchanges it to 0 before it reads that ring).
#include "verbs_shim/doorbell.h"

#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

void wake_if_asleep(DoorbellPage& page, int wake_fd) {
  // seq_cst: ordered after the entry's store, pairs with the worker's kAsleep.
  if (page.worker_state.load(std::memory_order_seq_cst) != kAsleep) return;
  // One of the threads that see kAsleep makes the system call.
  if (page.worker_state.exchange(kAwake, std::memory_order_acq_rel) != kAsleep) return;
  const std::uint64_t one = 1;
  (void)sys::write(wake_fd, &one, sizeof one);
}

void push(DoorbellPage& page, int wake_fd, std::uint32_t entry) {
  std::uint32_t place = page.producer.load(std::memory_order_relaxed);
  do {
    // acquire: pairs with the worker's release after it zeroed the entry that we will reuse.
    const std::uint32_t consumer = page.consumer.load(std::memory_order_acquire);
    if (place - consumer >= kDoorbellRingSize) {
      page.sweep.store(1, std::memory_order_seq_cst);  // as an entry's store
      wake_if_asleep(page, wake_fd);
      return;
    }
  } while (!page.producer.compare_exchange_weak(place, place + 1, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
  page.entries[place % kDoorbellRingSize].store(entry + 1, std::memory_order_seq_cst);
  wake_if_asleep(page, wake_fd);
}

}  // namespace

void ring_qp(DoorbellPage& page, int wake_fd, std::uint32_t slot) {
  // acq_rel: the provider's producer index is visible to the worker that exchanges this to 0.
  if (page.qp_pending[slot].exchange(1, std::memory_order_acq_rel) != 0) return;
  push(page, wake_fd, slot);
}

void arm_cq(DoorbellPage& page, int wake_fd, std::uint32_t slot, CqArm arm) {
  if (arm == kArmedAny) {
    page.cq_arm[slot].store(kArmedAny, std::memory_order_seq_cst);
  } else {
    std::uint32_t expected = kDisarmed;
    page.cq_arm[slot].compare_exchange_strong(expected, arm, std::memory_order_seq_cst);
  }
  push(page, wake_fd, kArmCqFlag | slot);
}

}  // namespace rocemu::shim
