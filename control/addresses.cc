#include "control/addresses.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <set>

namespace rocemu::control {

Result<wire::Gid> parse_address(const std::string& text) {
  const std::string bare = text.substr(0, text.find('/'));
  wire::Gid gid{};
  if (::inet_pton(AF_INET6, bare.c_str(), gid.data()) == 1) return gid;
  in_addr v4{};
  if (::inet_pton(AF_INET, bare.c_str(), &v4) != 1) {
    return Error{EINVAL, "'" + text + "' is no IPv4 or IPv6 address"};
  }
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], &v4, 4);
  return gid;
}

Result<std::uint8_t> parse_prefix_length(const std::string& text) {
  const auto gid = parse_address(text);
  if (!gid) return gid.error();
  const bool is_v4 = wire::is_ipv4_mapped(gid.value());
  const auto slash = text.find('/');
  if (slash == std::string::npos) return static_cast<std::uint8_t>(is_v4 ? 24 : 64);
  unsigned length = 0;
  const char* begin = text.data() + slash + 1;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), length);
  if (error != std::errc{} || end != text.data() + text.size() || length > (is_v4 ? 32u : 128u)) {
    return Error{EINVAL, "'" + text + "' has no sound prefix length"};
  }
  return static_cast<std::uint8_t>(length);
}

std::string address_text(const wire::Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (wire::is_ipv4_mapped(gid)) {
    ::inet_ntop(AF_INET, &gid[12], text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

std::string gid_text(const wire::Gid& gid) {
  std::string out;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    char group[8];
    std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    out += group;
  }
  return out;
}

Result<wire::MacAddress> parse_mac(const std::string& text) {
  wire::MacAddress mac{};
  unsigned part[6];
  char rest = 0;
  if (std::sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x%c", &part[0], &part[1], &part[2], &part[3],
                  &part[4], &part[5], &rest) != 6) {
    return Error{EINVAL, "'" + text + "' is no MAC address"};
  }
  std::transform(std::begin(part), std::end(part), mac.begin(),
                 [](unsigned v) { return static_cast<std::uint8_t>(v); });
  if ((mac[0] & 1) != 0) return Error{EINVAL, "'" + text + "' is a group address"};
  return mac;
}

std::string mac_text(const wire::MacAddress& mac) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
                mac[4], mac[5]);
  return text;
}

wire::Gid link_local(const wire::MacAddress& mac) {
  return {
      0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<std::uint8_t>(mac[0] ^ 2),
      mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

wire::MacAddress multicast_mac(const wire::Gid& group) {
  if (wire::is_ipv4_mapped(group)) {
    return {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(group[13] & 0x7f), group[14], group[15]};
  }
  return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

std::uint64_t node_guid(const wire::MacAddress& mac) {
  const wire::Gid gid = link_local(mac);
  std::uint64_t guid = 0;
  for (std::size_t i = 8; i < gid.size(); ++i) guid = guid << 8 | gid[i];
  return guid;
}

const char* gid_type_text(GidType type) {
  return type == GidType::kRoceV1 ? "IB/RoCE v1" : "RoCE v2";
}

std::vector<DeviceAddress> with_link_local(const wire::MacAddress& mac, const DeviceAddress& base,
                                           const std::vector<DeviceAddress>& addresses) {
  std::vector<DeviceAddress> out = {base};
  out.front().gid = link_local(mac);
  out.insert(out.end(), addresses.begin(), addresses.end());
  return out;
}

std::vector<std::size_t> update_gid_table(std::vector<GidEntry>& table, std::size_t limit,
                                          const std::vector<DeviceAddress>& addresses) {
  std::vector<GidEntry> wanted;
  for (const DeviceAddress& address : addresses) {
    for (const GidType type : {GidType::kRoceV1, GidType::kRoceV2}) {
      GidEntry entry{address.gid, type, address.vlan_id, address.netdev};
      if (std::ranges::find(wanted, entry) == wanted.end()) wanted.push_back(std::move(entry));
    }
  }
  std::set<std::size_t> changed;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].is_empty()) continue;
    const auto kept = std::ranges::find(wanted, table[i]);
    if (kept != wanted.end()) {
      wanted.erase(kept);
    } else {
      table[i] = {};
      changed.insert(i);
    }
  }
  std::size_t free = 0;
  for (GidEntry& entry : wanted) {
    while (free < table.size() && !table[free].is_empty()) ++free;
    if (free == limit) break;
    if (free == table.size()) table.emplace_back();
    table[free] = std::move(entry);
    changed.insert(free);
  }
  return {changed.begin(), changed.end()};
}

std::uint16_t udp_source_port(std::uint32_t flow_label, QpNum local, QpNum remote) {
  std::uint32_t f = flow_label & 0xf'ffff;
  if (f == 0) {
    std::uint64_t v = std::uint64_t{local.value} * remote.value;
    v ^= v >> 20;
    v ^= v >> 40;
    f = static_cast<std::uint32_t>(v & 0xf'ffff);
  }
  return static_cast<std::uint16_t>(((f & 0x3fff) ^ f >> 14) | 0xc000);
}

}  // namespace rocemu::control
