// ARP (RFC 826) for IPv4 and neighbour discovery (RFC 4861) for IPv6: frames that ask for, or tell,
// the MAC address of an IP address. Pure codecs; who asks when is the control thread's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/wire/headers.h"

namespace rocemu::wire {

enum class NeighbourKind : std::uint8_t { kRequest, kReply };

/// What an ARP or ND frame says. Addresses are GIDs (IPv4-mapped for ARP).
struct Neighbour {
  NeighbourKind kind = NeighbourKind::kRequest;
  MacAddress sender_mac{};
  Gid sender{};
  MacAddress target_mac{};  ///< Replies: whose question is answered.
  Gid target{};             ///< Requests: who is asked for. Replies: who asked.
};

/// The frame that asks for `target`, or answers. Family by the target. 802.1Q tag when `vlan_tci`
/// is given.
std::vector<std::byte> make_neighbour_frame(const Neighbour& message,
                                            std::optional<std::uint16_t> vlan_tci);

/// What the frame says, or nothing when it is no sound ARP or ND frame (RFC 4861 7.1.1, 7.1.2;
/// group or zero MAC addresses count as unsound) or asks from the unspecified IPv6 address. In a
/// gratuitous reply `target` may be the sender or a group.
std::optional<Neighbour> parse_neighbour(std::span<const std::byte> frame);

}  // namespace rocemu::wire
