// The responder of FLUSH and ATOMIC WRITE (annex A19, memory placement extensions). Both are
// answered by a READ response without bytes, count against the requests that may be outstanding,
// and are kept for duplicates: each is executed once.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

DropReason on_flush(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);
DropReason on_atomic_write(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);

}  // namespace rocemu::transport
