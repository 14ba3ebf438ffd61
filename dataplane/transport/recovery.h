// Retransmission by go-back-N (9.7.5.2.2): where to go back to, how often, and when. Retry counts
// and timers are those of the QP's attributes, in true microseconds.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// The record that holds `psn`, or kNoIndex.
std::uint32_t find_record(const Shard& shard, const Qp& qp, Psn psn);

/// Sends again from `psn` on, which must be outstanding.
void go_back(Shard& shard, Qp& qp, Psn psn);

/// A sequence error, reported (NAK) or implied: goes back to `psn` at the cost of one retry; none
/// left fails the oldest request.
void retry_from(Shard& shard, Qp& qp, Psn psn, Time now);

/// The peer was not ready: waits for the NAK's timer, then goes on from `psn`.
void wait_rnr(Shard& shard, Qp& qp, Psn psn, std::uint8_t timer_field, Time now);

/// Something was acknowledged: retry counts start anew, and so does the ACK timer.
void note_progress(Shard& shard, Qp& qp, Time now);

/// Starts the ACK timer when requests are outstanding and it does not run.
void start_ack_timer(Shard& shard, Qp& qp, Time now);

/// Runs the QP's timers that are due.
void run_timers(Shard& shard, Qp& qp, Time now);

/// Ends the head record with `status` and stops the QP in error: a requester error of class A or B
/// (9.9.2.1).
void fail_head(Shard& shard, Qp& qp, WcStatus status, Time now);

}  // namespace rocemu::transport
