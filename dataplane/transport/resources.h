// Responder resources: the READs, atomics, FLUSHes and ATOMIC WRITEs that a responder keeps so that
// it can answer them again (9.7.5.1.5), in PSN order. A QP keeps as many as it may have
// outstanding; the oldest gives way. The result of all but READs is kept in any case. A READ is
// kept while the shard's pool is at least half empty; else it is forgotten once answered, and a
// duplicate is executed anew, so that idle QPs do not use the pool up.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

struct MakeResult {
  std::uint32_t index = kNoIndex;
  bool is_pool_empty = false;  ///< Else the peer exceeded what was negotiated.
};

/// A blank resource at the end of the QP's list, for the newest request.
MakeResult make_resource(Shard& shard, Qp& qp);
void drop_newest_resource(Shard& shard, Qp& qp);

/// All packets of the resource's response are due.
void make_due(Shard& shard, Qp& qp, ResponderResource& resource);
/// Index of the resource whose response goes out next; due_resources is not 0.
std::uint32_t oldest_due(const Shard& shard, const Qp& qp);
/// One more packet of the resource's response is planned; the resource may be gone after.
void finish_packet(Shard& shard, Qp& qp, std::uint32_t index);
/// Takes back all responses that are due.
void cancel_due(Shard& shard, Qp& qp);
/// Takes back the responses to requests that came after `psn`.
void cancel_due_after(Shard& shard, Qp& qp, Psn psn);

/// A READ that was seen before, maybe from a later packet on: answers it again. False when it is
/// no legal duplicate.
bool replay_read(Shard& shard, Qp& qp, const wire::Packet& packet);
/// A request that is executed once, and was: answers with the saved result. False when none of this
/// kind is kept.
bool replay_result(Shard& shard, Qp& qp, const wire::Packet& packet, ResponderResource::Kind kind);

/// Response packets that `length` bytes take.
std::uint32_t read_packets(std::uint32_t length, std::uint32_t path_mtu);

}  // namespace rocemu::transport
