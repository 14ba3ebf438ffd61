#include "dataplane/transport/receive_queue.h"

namespace rocemu::transport {
namespace {

// The QP's receive at `index`. Cached within a call.
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

}  // namespace

bool has_receive(Shard& shard, const Qp& qp) {
  // The receive in use stays published until it is released, so this holds for every packet of it.
  return shard.queues.available(qp.recv_ring, qp.rq_next) != 0;
}

const RecvWorkRequest& use_receive(Shard& shard, Qp& qp) {
  return read_recv(shard, qp, qp.rq_next);
}

void end_receive(Shard&, Qp& qp) { ++qp.rq_next; }

std::uint32_t flushable_receives(Shard& shard, const Qp& qp) {
  if (!qp.recv_ring.is_present()) return 0;
  return shard.queues.available(qp.recv_ring, qp.rq_retired);
}

std::uint64_t oldest_receive(Shard& shard, Qp& qp) {
  return read_recv(shard, qp, qp.rq_retired).wr_id;
}

void release_receive(Shard& shard, Qp& qp) {
  if (qp.rq_next == qp.rq_retired) ++qp.rq_next;
  shard.queues.retire(qp.recv_ring, ++qp.rq_retired);
}

void drop_receives(Shard& shard, Qp& qp) {
  qp.rq_next = qp.rq_retired + shard.queues.available(qp.recv_ring, qp.rq_retired);
  qp.rq_retired = qp.rq_next;
  shard.queues.retire(qp.recv_ring, qp.rq_retired);
}

}  // namespace rocemu::transport
