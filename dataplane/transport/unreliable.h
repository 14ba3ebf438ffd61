// What UC and UD do otherwise than RC on the requester's side: nothing is acknowledged, so a work
// request ends when its last packet has left (IBTA vol. 1, 9.8.1), and an error stops the send
// queue only (SQE, 10.3.1).
#pragma once

#include "dataplane/transport/frame_plan.h"
#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// The frame of a UC or UD request was given to the sink: requests whose last packet this is end.
void on_request_sent(Shard& shard, Qp& qp, const FramePlan& plan, Time now);

/// Ends, in order, the requests at the head of the queue all of whose packets have left.
void end_sent_requests(Shard& shard, Qp& qp, Time now);

/// The address handle of this number, or null when it is none of the QP's context and PD.
const AddressHandle* find_address_handle(const Shard& shard, const Qp& qp, std::uint32_t number);

/// The send queue stops after an error: what is and will be posted is flushed until the program
/// brings the QP back to RTS; the receive queue goes on.
void enter_send_error(Shard& shard, Qp& qp, Time now);

}  // namespace rocemu::transport
