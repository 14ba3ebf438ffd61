// Completions: how a work request ends. Send work requests end in posting order; the head of the
// record list is the only one that may. A QP in the error state flushes what it has and what is
// posted later.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// Ends the oldest send record with `status` and frees it; a completion is written when it is
/// signalled or has failed. A CQ that is full loses the completion, is in error from then on
/// (kCqError), and stops each QP that loses one in it.
void retire_head(Shard& shard, Qp& qp, WcStatus status, Time now);

/// Ends the receive work request in use with `completion`, whose wr_id is the request's.
void retire_receive(Shard& shard, Qp& qp, const Completion& completion, Time now);

/// Ends the receive work request in use with an error.
void fail_receive(Shard& shard, Qp& qp, WcStatus status, Time now);

/// The QP stops in the error state; all work requests are flushed (10.3.1). `cause` is reported as
/// an asynchronous event unless absent.
void enter_error(Shard& shard, Qp& qp, Time now, const AsyncEventType* cause = nullptr);

/// Flushes what was posted since; arms the timer that comes back for receives.
void flush_queues(Shard& shard, Qp& qp, Time now);

/// Flushes what is and was posted to the send queue (SQE); comes back by the timer for what is more
/// than a batch.
void flush_send_queue(Shard& shard, Qp& qp, Time now);

/// The same, all of it at once.
void flush_whole_send_queue(Shard& shard, Qp& qp, Time now);

/// Raises an asynchronous event of the QP.
void raise_event(Shard& shard, const Qp& qp, AsyncEventType type);

/// Frees records and resources without completions (RESET, destroy).
void drop_all_state(Shard& shard, Qp& qp);

}  // namespace rocemu::transport
