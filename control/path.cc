#include "control/path.h"

namespace rocemu::control {
namespace {

// The hop limit of a unicast path is the route's, not the application's, as in Linux; this is what
// its routes say when nobody says otherwise.
constexpr std::uint8_t kRouteHopLimit = 64;

wire::RoceKind kind_of(const GidEntry& source) {
  if (source.type == GidType::kRoceV1) return wire::RoceKind::kV1;
  return wire::is_ipv4_mapped(source.gid) ? wire::RoceKind::kV2Ipv4 : wire::RoceKind::kV2Ipv6;
}

// RoCE v1 between link-local GIDs needs no IP stack: the MAC is in the EUI-64 (as in Linux).
std::optional<wire::MacAddress> mac_in_gid(const GidEntry& source, const wire::Gid& gid) {
  const bool is_link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
  const bool is_eui48 = gid[11] == 0xff && gid[12] == 0xfe;
  if (source.type != GidType::kRoceV1 || !is_link_local || !is_eui48) return std::nullopt;
  return wire::MacAddress{
      static_cast<std::uint8_t>(gid[8] ^ 2), gid[9], gid[10], gid[13], gid[14], gid[15]};
}

}  // namespace

PathOutcome resolve_path(Device& device, const PathEnds& ends, transport::AddressVector& path,
                         wire::Gid& awaited) {
  auto& verbs = path.verbs;
  const GidEntry* source = device.find_gid(verbs.sgid_index);
  if (verbs.is_global == 0 || source == nullptr || verbs.port_num != 1 ||
      verbs.dgid == wire::Gid{} ||
      wire::is_ipv4_mapped(source->gid) != wire::is_ipv4_mapped(verbs.dgid)) {
    return PathOutcome::kInvalid;
  }
  auto mac = mac_in_gid(*source, verbs.dgid);
  if (!mac) {
    mac = device.resolve(verbs.dgid, *source, awaited);
    if (!mac) return PathOutcome::kNeighbourAsked;
    if (!wire::is_multicast(verbs.dgid)) verbs.hop_limit = kRouteHopLimit;
  }
  wire::PathHeaders& h = path.headers;
  h.kind = kind_of(*source);
  h.destination_mac = *mac;
  h.source_mac = device.mac;
  h.has_vlan = source->vlan_id.has_value();
  // The service level is the priority (A16.5.1 leaves the mapping to the port; Linux's is 1:1).
  h.vlan_tci = static_cast<std::uint16_t>(source->vlan_id.value_or(0) | (verbs.sl & 7) << 13);
  h.source = source->gid;
  h.destination = verbs.dgid;
  h.traffic_class = verbs.traffic_class;
  h.hop_limit = verbs.hop_limit;
  h.flow_label = verbs.flow_label;
  h.udp_source_port = udp_source_port(verbs.flow_label, ends.local, ends.remote);
  return PathOutcome::kFound;
}

}  // namespace rocemu::control
