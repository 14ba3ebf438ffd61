// Where the payload of an incoming request goes: into the receive in use or into the memory that a
// RETH named. Shared by the responders of RC, UC and UD, which differ in what they do when it
// cannot go there.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// Plans the moves of `bytes` to `offset` in the receive. Its room was checked. False: an SGE fails
/// key, range, right or PD.
bool plan_into_receive(Shard& shard, const Qp& qp, const RecvWorkRequest& wr, std::uint64_t offset,
                       std::span<const std::byte> bytes);

/// RETH of a WRITE: key, right and the whole range (9.7.4.1.5). Zero length names no memory
/// (C9-88).
bool open_write(Shard& shard, Qp& qp, const wire::Reth& reth);

/// Plans the moves of a WRITE's payload behind what came before. False: the memory may not be
/// written any more.
bool plan_into_write(Shard& shard, const Qp& qp, std::span<const std::byte> bytes);

/// One action for the packet's moves since `first_move`.
Action& add_request_action(Shard& shard, Qp& qp, const wire::Packet& packet,
                           std::uint32_t first_move);

/// Of a receive that `packet` completes.
Completion receive_completion(const Qp& qp, const wire::Packet& packet, std::uint64_t wr_id,
                              std::uint32_t bytes, WcOpcode opcode);

}  // namespace rocemu::transport
