// Where a message gets its receive work request from: the QP's own receive queue, or a shared one.
// Which queue it is is resolved here and nowhere else, once a message. A request is in use from the
// first packet that needs it until end_receive(); it is then waiting for its bytes to be placed,
// and goes, oldest first, with retire_receive() or fail_receive() (completion.h). A message that is
// given up without an error (UC) leaves its request in use for the next one.
//
// Requests of an own queue stay in the ring until they are completed. Those of a shared queue are
// taken: copied, and their place is given back at once. The QP that took one completes or flushes
// it; those that nobody took stay for the other QPs.
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

/// Whose memory the QP's receives may name (10.2.9.1: the SRQ's PD, not the QP's).
PdId receive_pd(const Shard& shard, const Qp& qp);

/// Receives that are the QP's to flush: waiting, in use, or posted to its own queue.
std::uint32_t flushable_receives(Shard& shard, const Qp& qp);

/// wr_id of the oldest receive that is the QP's.
std::uint64_t oldest_receive(Shard& shard, Qp& qp);

/// The oldest receive is about to be completed: its place is the program's again.
void release_receive(Shard& shard, Qp& qp);

/// Raises kSrqLimitReached and disarms the limit when fewer receives than it are left.
void check_srq_limit(Shard& shard, SrqIndex index);

/// Forgets all receives that are the QP's, without completions (RESET).
void drop_receives(Shard& shard, Qp& qp);

}  // namespace rocemu::transport
