#include "dataplane/transport/receive_queue.h"

#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

// The QP's receive at `index` of its own queue. Cached within a call.
const RecvWorkRequest& read_recv(Shard& shard, const Qp& qp, std::uint32_t index) {
  const std::uint32_t qp_index = shard.index_of(qp);
  if (shard.recv_wr_qp == qp_index && shard.recv_wr_index == index) return shard.recv_wr;
  shard.recv_wr.is_malformed =
      shard.queues.read_recv(qp.recv_ring, index, qp.limits, shard.recv_wr) != ReadResult::kOk;
  if (shard.recv_wr.is_malformed) shard.counters.add(Counter::client_ring_errors);
  shard.recv_wr_qp = qp_index;
  shard.recv_wr_index = index;
  return shard.recv_wr;
}

bool is_shared(const Qp& qp) { return !qp.srq.is_none(); }

// Takes the next receive of the QP's SRQ.
const RecvWorkRequest& take(Shard& shard, Qp& qp) {
  Srq& srq = shard.srqs[qp.srq.value];
  const auto index = shard.taken.acquire();
  ROCEMU_CHECK(index);
  TakenReceive& taken = shard.taken[*index];
  taken.next = kNoIndex;
  QueueLimits limits;
  limits.max_recv_sge = srq.max_sge;
  taken.wr.is_malformed =
      shard.queues.read_recv(srq.ring, srq.next, limits, taken.wr) != ReadResult::kOk;
  shard.queues.retire(srq.ring, ++srq.next);
  if (qp.taken_tail != kNoIndex) {
    shard.taken[qp.taken_tail].next = *index;
  } else {
    qp.taken_head = *index;
  }
  qp.taken_tail = *index;
  ++qp.taken_count;
  qp.is_taken_in_use = true;
  if (taken.wr.is_malformed) {
    // What else is in the ring is not to be trusted either: it fails, for all QPs that share it.
    shard.counters.add(Counter::client_ring_errors);
    srq.has_failed = true;
    shard.events.on_async_event({.type = AsyncEventType::kSrqError, .srq = qp.srq});
  } else {
    check_srq_limit(shard, qp.srq);
  }
  return taken.wr;
}

void release_taken(Shard& shard, Qp& qp) {
  const std::uint32_t index = qp.taken_head;
  ROCEMU_CHECK(index != kNoIndex);
  qp.taken_head = shard.taken[index].next;
  if (qp.taken_head == kNoIndex) {
    qp.taken_tail = kNoIndex;
    qp.is_taken_in_use = false;
  }
  --qp.taken_count;
  shard.taken.release(index);
}

}  // namespace

bool has_receive(Shard& shard, const Qp& qp) {
  if (!is_shared(qp)) {
    // The receive in use stays published until it is released, so this holds for every packet of
    // it.
    return shard.queues.available(qp.recv_ring, qp.rq_next) != 0;
  }
  if (qp.is_taken_in_use) return true;
  const Srq& srq = shard.srqs[qp.srq.value];
  return !srq.has_failed && shard.queues.available(srq.ring, srq.next) != 0 &&
         shard.taken.in_use() != shard.taken.capacity();
}

const RecvWorkRequest& use_receive(Shard& shard, Qp& qp) {
  if (!is_shared(qp)) return read_recv(shard, qp, qp.rq_next);
  return qp.is_taken_in_use ? shard.taken[qp.taken_tail].wr : take(shard, qp);
}

void end_receive(Shard&, Qp& qp) {
  if (is_shared(qp)) {
    qp.is_taken_in_use = false;
  } else {
    ++qp.rq_next;
  }
}

PdId receive_pd(const Shard& shard, const Qp& qp) {
  return is_shared(qp) ? shard.srqs[qp.srq.value].pd : qp.pd;
}

std::uint32_t flushable_receives(Shard& shard, const Qp& qp) {
  return is_shared(qp) ? qp.taken_count : shard.queues.available(qp.recv_ring, qp.rq_retired);
}

std::uint64_t oldest_receive(Shard& shard, Qp& qp) {
  return is_shared(qp) ? shard.taken[qp.taken_head].wr.wr_id
                       : read_recv(shard, qp, qp.rq_retired).wr_id;
}

void release_receive(Shard& shard, Qp& qp) {
  if (is_shared(qp)) {
    release_taken(shard, qp);
    return;
  }
  if (qp.rq_next == qp.rq_retired) ++qp.rq_next;
  shard.queues.retire(qp.recv_ring, ++qp.rq_retired);
}

void check_srq_limit(Shard& shard, SrqIndex index) {
  Srq& srq = shard.srqs[index.value];
  if (srq.limit == 0 || shard.queues.available(srq.ring, srq.next) >= srq.limit) return;
  srq.limit = 0;
  shard.events.on_async_event({.type = AsyncEventType::kSrqLimitReached, .srq = index});
}

void drop_receives(Shard& shard, Qp& qp) {
  if (is_shared(qp)) {
    while (qp.taken_count != 0) release_taken(shard, qp);
    return;
  }
  qp.rq_next = qp.rq_retired + shard.queues.available(qp.recv_ring, qp.rq_retired);
  qp.rq_retired = qp.rq_next;
  shard.queues.retire(qp.recv_ring, qp.rq_retired);
}

}  // namespace rocemu::transport
