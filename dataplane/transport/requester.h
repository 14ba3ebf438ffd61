// The requester: from work requests to request packets (IBTA vol. 1, 9.7.3, 9.7.7). It begins work
// requests in order, numbers their packets, and stops where window, fence, outstanding READs, state
// or a running RNR timer say so; can_send() is recomputed each time.
#pragma once

#include "dataplane/transport/frame_plan.h"
#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// True when plan_request() would look for something to send: cheap, may be true in vain once.
bool can_send(const Shard& shard, const Qp& qp);

/// The application published work requests: looks at the ring.
void on_doorbell(Shard& shard, Qp& qp, Time now);

/// Plans the next request packet into the buffer whose payload begins at `payload`, which has room
/// for the path MTU and wire::kMaxHeaderBytes before it.
Planned plan_request(Shard& shard, Qp& qp, Time now, std::byte* payload, FramePlan& plan);

/// The payload of a planned request could not be read: the request fails when its turn comes.
void on_request_retracted(Shard& shard, Qp& qp, const FramePlan& plan, Time now);

}  // namespace rocemu::transport
