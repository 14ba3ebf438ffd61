#include "dataplane/transport/unreliable.h"

#include "dataplane/transport/completer.h"
#include "dataplane/transport/completion.h"

namespace rocemu::transport {

void on_request_sent(Shard& shard, Qp& qp, const FramePlan& plan, Time now) {
  // A request behind it in the batch may have stopped the queue.
  if (qp.state != QpState::kRts && qp.state != QpState::kSqd) return;
  qp.unacked_psn = plan.psn.next();
  end_sent_requests(shard, qp, now);
}

void end_sent_requests(Shard& shard, Qp& qp, Time now) {
  while (qp.record_head != kNoIndex) {
    const SendRecord& head = shard.records[qp.record_head];
    if (head.failure != WcStatus::kSuccess) break;
    if (distance(head.last_psn(), qp.unacked_psn) <= 0) break;
    retire_head(shard, qp, WcStatus::kSuccess, now);
  }
  settle_head(shard, qp, now);
}

const AddressHandle* find_address_handle(const Shard& shard, const Qp& qp, std::uint32_t number) {
  const std::uint32_t index = number & kAhIndexMask;
  if (!shard.address_handles.is_live(index)) return nullptr;
  const AddressHandle& ah = shard.address_handles[index];
  const bool is_its_own = ah.number == number && ah.context == qp.context && ah.pd == qp.pd;
  return is_its_own ? &ah : nullptr;
}

void enter_send_error(Shard& shard, Qp& qp, Time now) {
  qp.state = QpState::kSqe;
  qp.is_sq_draining = false;
  qp.tx_record = kNoIndex;
  clear_timer(qp, TimerKind::kBegin);
  // PSNs that were given out and not sent are gone, as those of lost packets.
  qp.unacked_psn = qp.sent_psn = qp.next_psn;
  flush_send_queue(shard, qp, now);
}

}  // namespace rocemu::transport
