#include "control/addresses.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

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

std::uint64_t node_guid(const wire::MacAddress& mac) {
  const wire::Gid gid = link_local(mac);
  std::uint64_t guid = 0;
  for (std::size_t i = 8; i < gid.size(); ++i) guid = guid << 8 | gid[i];
  return guid;
}

const char* gid_type_text(GidType type) {
  return type == GidType::kRoceV1 ? "IB/RoCE v1" : "RoCE v2";
}

std::vector<GidEntry> make_gid_table(const wire::MacAddress& mac,
                                     const std::vector<wire::Gid>& addresses) {
  std::vector<GidEntry> table;
  const auto add = [&table](const wire::Gid& gid) {
    table.push_back({gid, GidType::kRoceV1});
    table.push_back({gid, GidType::kRoceV2});
  };
  add(link_local(mac));
  for (const wire::Gid& gid : addresses) add(gid);
  return table;
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
