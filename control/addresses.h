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
/// IPv4 as dotted quad, others as IPv6.
std::string address_text(const wire::Gid& gid);
/// Eight groups of four digits, as sysfs shows GIDs.
std::string gid_text(const wire::Gid& gid);
/// "02:00:52:6f:00:01". EINVAL.
Result<wire::MacAddress> parse_mac(const std::string& text);
std::string mac_text(const wire::MacAddress& mac);
/// fe80::/64 with the EUI-64 of the MAC (RFC 4291, appendix A).
wire::Gid link_local(const wire::MacAddress& mac);
std::uint64_t node_guid(const wire::MacAddress& mac);  ///< EUI-64, host order.

enum class GidType : std::uint8_t { kRoceV1, kRoceV2 };
const char* gid_type_text(GidType type);  ///< As in gid_attrs/types.

struct GidEntry {
  wire::Gid gid{};
  GidType type = GidType::kRoceV2;
};
std::vector<GidEntry> make_gid_table(const wire::MacAddress& mac,
                                     const std::vector<wire::Gid>& addresses);

/// Source port of an RC or UC QP: from the flow label, else folded from both QP numbers, so that
/// both directions share it and switches spread QPs (A17.4.5.2; the fold is Linux's).
std::uint16_t udp_source_port(std::uint32_t flow_label, QpNum local, QpNum remote);

}  // namespace rocemu::control
