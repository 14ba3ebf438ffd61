// Work requests of the send queue that send nothing: binding a memory window and invalidating a key
// (10.6.5, 10.6.7.2.1). They are done when their turn to begin comes, so that every later request
// finds their effect, and complete in posting order.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// True while the request must not be done yet: a fence waits for READs and atomics, a local
/// invalidate for everything before it.
bool must_local_wait(const Qp& qp, const SendWorkRequest& wr);

/// Does it. `wr.opcode` is kBindMw or kLocalInv. kMwBindErr when the rules of the key table refuse
/// it (rxe: kLocQpOpErr for an invalidate).
WcStatus run_local(Shard& shard, const Qp& qp, const SendWorkRequest& wr);

}  // namespace rocemu::transport
