// Responders that answer nothing. UC executes messages that came whole and drops the others
// silently (IBTA vol. 1, 9.8.2.2); UD executes datagrams that its Q_Key lets in (9.8.3.1, 10.2.5).
// A dropped packet has one reason; a receive that a broken message had in use serves the next one.
#pragma once

#include "dataplane/transport/shard.h"

namespace rocemu::transport {

/// Bytes before the payload of a datagram in the receive: the GRH, or what stands for it
/// (11.4.1.2).
inline constexpr std::uint32_t kGrhBytes = 40;

/// A UC request that passed the header checks.
DropReason on_uc_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);

/// A UD request that passed the header checks. `packet.payload` lies in its frame.
DropReason on_ud_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now);

/// The moves of a packet ran. `is_done` is false when memory failed them: the QP stops.
void on_unreliable_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now);

}  // namespace rocemu::transport
