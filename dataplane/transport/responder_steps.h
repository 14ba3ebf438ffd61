// Steps that all responders share, whatever the request: accepting and refusing it.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// The request was executed, or will have been when its moves are committed: PSNs, MSN, counters.
void accept_request(Shard& shard, Qp& qp, const wire::Packet& packet, std::uint32_t psn_count);

/// Refuses a request on its arrival: NAK, asynchronous event, error state (9.9.3). Those before it
/// in the burst are ended first.
DropReason refuse(Shard& shard, Qp& qp, wire::NakCode code, Psn psn, Time now);

}  // namespace rocemu::transport
