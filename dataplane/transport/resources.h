// Responder resources: the READs and atomics that a responder keeps so that it can answer them
// again (9.7.5.1.5). A QP keeps at most max_dest_rd_atomic, the oldest answered one gives way; all
// come from the shard's pool.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

struct MakeResult {
  std::uint32_t index = kNoIndex;
  bool is_pool_empty = false;  ///< Else the peer exceeded what was negotiated.
};

/// A blank resource at the end of the QP's list.
MakeResult make_resource(Shard& shard, Qp& qp);
void drop_newest_resource(Shard& shard, Qp& qp);

/// Packets [first, end) of the resource's response are due.
void make_due(Shard& shard, Qp& qp, ResponderResource& resource, std::uint32_t first,
              std::uint32_t end);
/// The resource whose response goes out next; due_resources is not 0.
ResponderResource& oldest_due(Shard& shard, Qp& qp);
/// Takes back all responses that are due.
void cancel_due(Shard& shard, Qp& qp);

/// A READ that was seen before, maybe from a later packet on: answers it again. False when it is no
/// part of any that is kept.
bool replay_read(Shard& shard, Qp& qp, const wire::Packet& packet);
/// An atomic that was executed before: answers with the saved result.
bool replay_atomic(Shard& shard, Qp& qp, const wire::Packet& packet);

}  // namespace rocemu::transport
