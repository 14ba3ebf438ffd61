// Where a message gets its receive work request from: the QP's own receive queue. Which queue it is
// is resolved here and nowhere else, once a message. A request is in use from the first packet that
// needs it until end_receive(); it is then waiting for its bytes to be placed, and goes, oldest
// first, with retire_receive() or fail_receive() (completion.h).
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// A receive is in use, or one can be taken. False: the peer is told to come again (RNR).
bool has_receive(Shard& shard, const Qp& qp);

/// The receive of the message that begins or goes on; has_receive() is true. Valid until the next
/// call that reads a ring or commits moves.
const RecvWorkRequest& use_receive(Shard& shard, Qp& qp);

/// The message that uses the receive has ended: the next one takes another.
void end_receive(Shard& shard, Qp& qp);

/// Receives that are the QP's to flush: waiting, in use, or posted to its own queue.
std::uint32_t flushable_receives(Shard& shard, const Qp& qp);

/// wr_id of the oldest receive that is the QP's.
std::uint64_t oldest_receive(Shard& shard, Qp& qp);

/// The oldest receive is about to be completed: its place is the program's again.
void release_receive(Shard& shard, Qp& qp);

/// Forgets all receives that are the QP's, without completions (RESET).
void drop_receives(Shard& shard, Qp& qp);

}  // namespace rocemu::transport
