#include "dataplane/wire/neighbour.h"

#include <algorithm>
#include <cstring>

#include "rocemu/base/bytes.h"

namespace rocemu::wire {
namespace {

constexpr std::size_t kArpBytes = 28;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kNdBytes = 32;  // ICMPv6 header, target, one link-layer address option
constexpr std::uint8_t kIcmpv6 = 58;
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint8_t kSourceLinkAddress = 1;
constexpr std::uint8_t kTargetLinkAddress = 2;
constexpr MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

Gid map_ipv4(const std::byte* p) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], p, 4);
  return gid;
}

std::byte* put(std::byte* p, const void* bytes, std::size_t n) {
  std::memcpy(p, bytes, n);
  return p + n;
}

std::byte* put_ethernet(std::byte* p, const MacAddress& to, const MacAddress& from,
                        std::optional<std::uint16_t> vlan_tci, std::uint16_t type) {
  p = put(p, to.data(), to.size());
  p = put(p, from.data(), from.size());
  if (vlan_tci) {
    store_be<std::uint16_t>(p, kEtherTypeVlan);
    store_be<std::uint16_t>(p + 2, *vlan_tci);
    p += 4;
  }
  store_be<std::uint16_t>(p, type);
  return p + 2;
}

// RFC 4291 2.7.1 and RFC 2464 7.
Gid solicited_node(const Gid& target) {
  Gid group = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};
  std::copy(target.begin() + 13, target.end(), group.begin() + 13);
  return group;
}
MacAddress group_mac(const Gid& group) {
  return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

std::uint16_t icmpv6_checksum(const std::byte* ipv6, std::size_t length) {
  std::uint32_t sum = static_cast<std::uint32_t>(length) + kIcmpv6;
  for (std::size_t i = 8; i < kIpv6Bytes + length; i += 2) {
    sum += load_be<std::uint16_t>(ipv6 + i);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

std::vector<std::byte> make_arp(const Neighbour& m, std::optional<std::uint16_t> vlan_tci) {
  std::vector<std::byte> frame((vlan_tci ? 18 : 14) + kArpBytes);
  const bool is_request = m.kind == NeighbourKind::kRequest;
  std::byte* p = put_ethernet(frame.data(), is_request ? kBroadcast : m.target_mac, m.sender_mac,
                              vlan_tci, kEtherTypeArp);
  store_be<std::uint16_t>(p, 1);
  store_be<std::uint16_t>(p + 2, kEtherTypeIpv4);
  p[4] = std::byte{6};
  p[5] = std::byte{4};
  store_be<std::uint16_t>(p + 6, is_request ? 1 : 2);
  p = put(p + 8, m.sender_mac.data(), 6);
  p = put(p, &m.sender[12], 4);
  p = put(p, m.target_mac.data(), 6);
  put(p, &m.target[12], 4);
  return frame;
}

std::vector<std::byte> make_nd(const Neighbour& m, std::optional<std::uint16_t> vlan_tci) {
  std::vector<std::byte> frame((vlan_tci ? 18 : 14) + kIpv6Bytes + kNdBytes);
  const bool is_request = m.kind == NeighbourKind::kRequest;
  const Gid destination = is_request ? solicited_node(m.target) : m.target;
  std::byte* ip = put_ethernet(frame.data(), is_request ? group_mac(destination) : m.target_mac,
                               m.sender_mac, vlan_tci, kEtherTypeIpv6);
  ip[0] = std::byte{0x60};
  store_be<std::uint16_t>(ip + 4, kNdBytes);
  ip[6] = std::byte{kIcmpv6};
  ip[7] = std::byte{255};
  put(ip + 8, m.sender.data(), 16);
  put(ip + 24, destination.data(), 16);
  std::byte* icmp = ip + kIpv6Bytes;
  icmp[0] = std::byte{is_request ? kSolicitation : kAdvertisement};
  if (!is_request) icmp[4] = std::byte{0x60};  // solicited, override
  put(icmp + 8, is_request ? m.target.data() : m.sender.data(), 16);
  icmp[24] = std::byte{is_request ? kSourceLinkAddress : kTargetLinkAddress};
  icmp[25] = std::byte{1};
  put(icmp + 26, m.sender_mac.data(), 6);
  store_be<std::uint16_t>(icmp + 2, icmpv6_checksum(ip, kNdBytes));
  return frame;
}

std::optional<Neighbour> parse_arp(std::span<const std::byte> arp) {
  if (arp.size() < kArpBytes) return std::nullopt;
  const std::byte* p = arp.data();
  const std::uint16_t operation = load_be<std::uint16_t>(p + 6);
  if (load_be<std::uint16_t>(p) != 1 || load_be<std::uint16_t>(p + 2) != kEtherTypeIpv4 ||
      load_be<std::uint16_t>(p + 4) != 0x0604 || operation < 1 || operation > 2) {
    return std::nullopt;
  }
  Neighbour m;
  m.kind = operation == 1 ? NeighbourKind::kRequest : NeighbourKind::kReply;
  std::memcpy(m.sender_mac.data(), p + 8, 6);
  m.sender = map_ipv4(p + 14);
  std::memcpy(m.target_mac.data(), p + 18, 6);
  m.target = map_ipv4(p + 24);
  return m;
}

// The link-layer address option of the wanted type, or nothing.
const std::byte* find_option(std::span<const std::byte> options, std::uint8_t type) {
  while (options.size() >= 8) {
    const std::size_t length = std::to_integer<std::size_t>(options[1]) * 8;
    if (length == 0 || length > options.size()) return nullptr;
    if (options[0] == std::byte{type}) return &options[2];
    options = options.subspan(length);
  }
  return nullptr;
}

std::optional<Neighbour> parse_nd(std::span<const std::byte> frame, std::size_t at) {
  if (frame.size() < at + kIpv6Bytes + 24) return std::nullopt;
  const std::byte* ip = &frame[at];
  const std::size_t length = load_be<std::uint16_t>(ip + 4);
  // A hop limit of 255 proves that the frame was not routed (RFC 4861 7.1).
  if (ip[6] != std::byte{kIcmpv6} || ip[7] != std::byte{255} || length < 24 || length % 2 != 0 ||
      length > frame.size() - at - kIpv6Bytes || icmpv6_checksum(ip, length) != 0) {
    return std::nullopt;
  }
  const std::byte* icmp = ip + kIpv6Bytes;
  const auto type = std::to_integer<std::uint8_t>(icmp[0]);
  if (type != kSolicitation && type != kAdvertisement) return std::nullopt;
  const bool is_request = type == kSolicitation;
  const std::byte* mac =
      find_option({icmp + 24, length - 24}, is_request ? kSourceLinkAddress : kTargetLinkAddress);
  if (mac == nullptr) return std::nullopt;
  Neighbour m;
  m.kind = is_request ? NeighbourKind::kRequest : NeighbourKind::kReply;
  std::memcpy(m.sender_mac.data(), mac, 6);
  std::memcpy(m.sender.data(), is_request ? ip + 8 : icmp + 8, 16);
  std::memcpy(m.target.data(), is_request ? icmp + 8 : ip + 24, 16);
  return m;
}

}  // namespace

std::vector<std::byte> make_neighbour_frame(const Neighbour& message,
                                            std::optional<std::uint16_t> vlan_tci) {
  return is_ipv4_mapped(message.target) ? make_arp(message, vlan_tci) : make_nd(message, vlan_tci);
}

std::optional<Neighbour> parse_neighbour(std::span<const std::byte> frame) {
  if (frame.size() < 18) return std::nullopt;
  std::size_t at = 14;
  std::uint16_t type = load_be<std::uint16_t>(&frame[12]);
  if (type == kEtherTypeVlan) {
    at = 18;
    type = load_be<std::uint16_t>(&frame[16]);
  }
  if (type == kEtherTypeArp) return parse_arp(frame.subspan(at));
  if (type == kEtherTypeIpv6) return parse_nd(frame, at);
  return std::nullopt;
}

}  // namespace rocemu::wire
