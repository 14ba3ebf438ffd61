// Addresses of a device: text to and from GIDs and MACs, the GID table in Linux's order (link-local
// first, then each address; RoCE v1 before v2), and what turns a verbs address vector into headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/transport/qp_attr.h"
#include "dataplane/wire/headers.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// "10.0.0.1", "fd00::1", with or without "/prefix" (dropped). EINVAL.
Result<wire::Gid> parse_address(const std::string& text);
/// The "/prefix" of such a text; without one 24 (IPv4) or 64. EINVAL.
Result<std::uint8_t> parse_prefix_length(const std::string& text);
/// IPv4 as dotted quad, others as IPv6.
std::string address_text(const wire::Gid& gid);
/// Eight groups of four digits, as sysfs shows GIDs.
std::string gid_text(const wire::Gid& gid);
/// "02:00:52:6f:00:01". EINVAL.
Result<wire::MacAddress> parse_mac(const std::string& text);
std::string mac_text(const wire::MacAddress& mac);
/// fe80::/64 with the EUI-64 of the MAC (RFC 4291, appendix A).
wire::Gid link_local(const wire::MacAddress& mac);
/// The group address that frames to a multicast GID go to (RFC 1112 6.4, RFC 2464 7).
wire::MacAddress multicast_mac(const wire::Gid& group);
std::uint64_t node_guid(const wire::MacAddress& mac);  ///< EUI-64, host order.

enum class GidType : std::uint8_t { kRoceV1, kRoceV2 };
const char* gid_type_text(GidType type);  ///< As in gid_attrs/types.

/// An address of a device, with where it is.
struct DeviceAddress {
  wire::Gid gid{};
  std::optional<std::uint16_t> vlan_id;  ///< Frames from it carry this tag.
  std::string netdev;                    ///< Interface that has it; empty: none has.
};

struct GidEntry {
  wire::Gid gid{};
  GidType type = GidType::kRoceV2;
  std::optional<std::uint16_t> vlan_id;
  std::string netdev;

  bool is_empty() const { return gid == wire::Gid{}; }
  bool operator==(const GidEntry&) const = default;
};
/// The link-local address of `mac` (of `base` otherwise), then `addresses`.
std::vector<DeviceAddress> with_link_local(const wire::MacAddress& mac, const DeviceAddress& base,
                                           const std::vector<DeviceAddress>& addresses);
/// Brings `table` to `addresses` as Linux does: what stays keeps its index, what is gone leaves an
/// empty entry, what is new takes the first that is empty, RoCE v1 before v2. Addresses beyond
/// `limit` entries have no place. Returns the indices that changed, in order.
std::vector<std::size_t> update_gid_table(std::vector<GidEntry>& table, std::size_t limit,
                                          const std::vector<DeviceAddress>& addresses);

/// Source port of an RC or UC QP: from the flow label, else folded from both QP numbers, so that
/// both directions share it and switches spread QPs (A17.4.5.2; the fold is Linux's).
std::uint16_t udp_source_port(std::uint32_t flow_label, QpNum local, QpNum remote);

}  // namespace rocemu::control
