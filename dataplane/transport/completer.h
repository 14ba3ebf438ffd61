// The completer: what responses do to outstanding requests (IBTA vol. 1, 9.7.6, 9.9.2). An
// acknowledgement ends all requests up to its PSN; READ and atomic requests end by their own
// responses only, and a response past a missing one implies its loss.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// A response packet for this QP; header checks are done, the state among them. Returns why it was
/// dropped, or none.
DropReason on_response(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);

/// Commit of a READ response's or atomic result's moves.
void on_read_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now);

/// Ends what is at the head of the record list and done or doomed.
void settle_head(Shard& shard, Qp& qp, Time now);

}  // namespace rocemu::transport
