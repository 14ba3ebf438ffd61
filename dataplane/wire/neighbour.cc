// One builder and one parser a protocol. What is parsed came from anybody on the link: the checks
// of RFC 4861 7.1.1 and 7.1.2 are all made, ARP gets the like, and a group address is nobody's.
#include "dataplane/wire/neighbour.h"

#include <algorithm>
#include <cstring>

#include "dataplane/wire/inet_checksum.h"
#include "rocemu/base/bytes.h"

namespace rocemu::wire {
namespace {

constexpr std::size_t kArpBytes = 28;
constexpr std::size_t kNdFixedBytes = 24;            // ICMPv6 header, flags, target
constexpr std::size_t kNdBytes = kNdFixedBytes + 8;  // and one link-layer address option
constexpr std::uint8_t kIcmpv6 = 58;
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint8_t kSourceLinkAddress = 1;
constexpr std::uint8_t kTargetLinkAddress = 2;
constexpr MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

std::size_t ethernet_bytes(std::optional<std::uint16_t> vlan_tci) {
  return kEthernetBytes + (vlan_tci ? kVlanBytes : 0);
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
    p += kVlanBytes;
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
  // The pseudo header (RFC 8200 8.1): addresses, length, next header.
  return fold_checksum(static_cast<std::uint32_t>(length) + kIcmpv6 +
                       sum_words(ipv6 + 8, kIpv6Bytes - 8 + length));
}

std::vector<std::byte> make_arp(const Neighbour& m, std::optional<std::uint16_t> vlan_tci) {
  std::vector<std::byte> frame(ethernet_bytes(vlan_tci) + kArpBytes);
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
  std::vector<std::byte> frame(ethernet_bytes(vlan_tci) + kIpv6Bytes + kNdBytes);
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

// A station's own address: neither a group nor nothing.
bool is_station(const MacAddress& mac) { return (mac[0] & 1) == 0 && mac != MacAddress{}; }

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
  if (!is_station(m.sender_mac) || is_multicast(m.sender)) return std::nullopt;
  return m;
}

// The MAC address in the first option of the wanted type. Nothing when there is none, or when any
// option is broken: then the whole message is.
std::optional<MacAddress> find_link_address(std::span<const std::byte> options, std::uint8_t type) {
  std::optional<MacAddress> found;
  while (!options.empty()) {
    if (options.size() < 8) return std::nullopt;
    const std::size_t length = std::to_integer<std::size_t>(options[1]) * 8;
    if (length == 0 || length > options.size()) return std::nullopt;
    if (!found && options[0] == std::byte{type}) {
      found.emplace();
      std::memcpy(found->data(), &options[2], found->size());
    }
    options = options.subspan(length);
  }
  return found;
}

// The ICMPv6 message behind the IPv6 header at `at`, when it is a sound solicitation or
// advertisement; else nothing. A hop limit of 255 proves that no router sent it on.
std::span<const std::byte> find_nd(std::span<const std::byte> frame, std::size_t at) {
  if (frame.size() < at + kIpv6Bytes + kNdFixedBytes) return {};
  const std::byte* ip = &frame[at];
  const std::size_t length = load_be<std::uint16_t>(ip + 4);
  const bool is_icmp = std::to_integer<std::uint8_t>(ip[0]) >> 4 == 6 &&
                       ip[6] == std::byte{kIcmpv6} && ip[7] == std::byte{255};
  if (!is_icmp || length < kNdFixedBytes || length > frame.size() - at - kIpv6Bytes) return {};
  const std::byte* icmp = ip + kIpv6Bytes;
  const bool is_nd = icmp[0] == std::byte{kSolicitation} || icmp[0] == std::byte{kAdvertisement};
  if (!is_nd || icmp[1] != std::byte{0} || icmpv6_checksum(ip, length) != 0) return {};
  return {icmp, length};
}

std::optional<Neighbour> parse_nd(std::span<const std::byte> frame, std::size_t at) {
  const auto icmp = find_nd(frame, at);
  if (icmp.empty()) return std::nullopt;
  Gid source;
  Gid destination;
  Gid target;
  std::memcpy(source.data(), &frame[at + 8], source.size());
  std::memcpy(destination.data(), &frame[at + 24], destination.size());
  std::memcpy(target.data(), &icmp[8], target.size());
  const bool is_request = icmp[0] == std::byte{kSolicitation};
  const bool is_solicited = (icmp[4] & std::byte{0x40}) != std::byte{0};
  if (is_multicast(target) || is_multicast(source)) return std::nullopt;
  // Duplicate address detection asks from nowhere; there is nobody to learn or to answer.
  if (is_request && source == Gid{}) return std::nullopt;
  if (!is_request && is_solicited && is_multicast(destination)) return std::nullopt;
  const auto mac = find_link_address(icmp.subspan(kNdFixedBytes),
                                     is_request ? kSourceLinkAddress : kTargetLinkAddress);
  if (!mac || !is_station(*mac)) return std::nullopt;
  Neighbour m;
  m.kind = is_request ? NeighbourKind::kRequest : NeighbourKind::kReply;
  m.sender_mac = *mac;
  m.sender = is_request ? source : target;
  m.target = is_request ? target : destination;
  return m;
}

}  // namespace

std::vector<std::byte> make_neighbour_frame(const Neighbour& message,
                                            std::optional<std::uint16_t> vlan_tci) {
  return is_ipv4_mapped(message.target) ? make_arp(message, vlan_tci) : make_nd(message, vlan_tci);
}

std::optional<Neighbour> parse_neighbour(std::span<const std::byte> frame) {
  if (frame.size() < kEthernetBytes + kVlanBytes) return std::nullopt;
  std::size_t at = kEthernetBytes;
  std::uint16_t type = load_be<std::uint16_t>(&frame[12]);
  if (type == kEtherTypeVlan) {
    at += kVlanBytes;
    type = load_be<std::uint16_t>(&frame[16]);
  }
  if (type == kEtherTypeArp) return parse_arp(frame.subspan(at));
  if (type == kEtherTypeIpv6) return parse_nd(frame, at);
  return std::nullopt;
}

}  // namespace rocemu::wire
