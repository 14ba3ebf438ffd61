#include "control/path.h"

namespace rocemu::control {
namespace {

// What Linux's routes give a RoCE v2 packet when nobody says otherwise.
constexpr std::uint8_t kDefaultHopLimit = 64;

wire::RoceKind kind_of(const GidEntry& source) {
  if (source.type == GidType::kRoceV1) return wire::RoceKind::kV1;
  return wire::is_ipv4_mapped(source.gid) ? wire::RoceKind::kV2Ipv4 : wire::RoceKind::kV2Ipv6;
}

}  // namespace

PathOutcome resolve_path(Device& device, const PathEnds& ends, transport::AddressVector& path,
                         wire::Gid& awaited) {
  const auto& verbs = path.verbs;
  const GidEntry* source = device.find_gid(verbs.sgid_index);
  if (verbs.is_global == 0 || source == nullptr || verbs.port_num != 1 ||
      verbs.dgid == wire::Gid{} ||
      wire::is_ipv4_mapped(source->gid) != wire::is_ipv4_mapped(verbs.dgid)) {
    return PathOutcome::kInvalid;
  }
  const auto mac = device.resolve(verbs.dgid, *source, awaited);
  if (!mac) return PathOutcome::kNeighbourAsked;
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
  h.hop_limit = verbs.hop_limit != 0 ? verbs.hop_limit : kDefaultHopLimit;
  h.flow_label = verbs.flow_label;
  h.udp_source_port = udp_source_port(verbs.flow_label, ends.local, ends.remote);
  return PathOutcome::kFound;
}

}  // namespace rocemu::control
