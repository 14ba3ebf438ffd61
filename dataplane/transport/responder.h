// The responder: executes requests in PSN order, exactly once where that matters, and answers (IBTA
// vol. 1, 9.7.4, 9.7.5). Nothing is acknowledged before its bytes are placed: responses are planned
// after the turn's moves.
#pragma once

#include "dataplane/transport/frame_plan.h"
#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// A request packet for this QP; header checks are done, the state among them. Returns why it was
/// dropped, or none.
DropReason on_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);

/// Commit of a SEND's or WRITE's payload.
void on_request_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now);

/// True when a response is due.
inline bool has_response(const Qp& qp) {
  return qp.due_resources != 0 || qp.pending_response != PendingResponse::kNone;
}

/// Plans the next response packet: READ responses and atomic results in request order, then the
/// acknowledgement.
Planned plan_response(Shard& shard, Qp& qp, Time now, std::byte* payload, FramePlan& plan);

/// The payload of a planned READ response could not be read.
void on_response_retracted(Shard& shard, Qp& qp, const FramePlan& plan, Time now);

}  // namespace rocemu::transport
