// Frame codec. parse_packet() walks the layers with every length checked against the frame; the two
// write_headers() share one writer for BTH and extended headers, so that what is parsed is what is
// written.
#include "dataplane/wire/packet.h"

#include <cstring>
#include <optional>

#include "dataplane/wire/inet_checksum.h"
#include "rocemu/base/bytes.h"

namespace rocemu::wire {
namespace {

constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kNextHeaderIba = 0x1b;  // GRH of RoCE v1 (A16.4.1)

struct L2 {
  std::size_t l3_offset;
  std::uint16_t ether_type;
};

// Ethernet and an optional single 802.1Q tag. The frame has at least 14 bytes.
std::optional<L2> parse_l2(std::span<const std::byte> frame, PathHeaders* path) {
  if (frame.size() < kEthernetBytes) return std::nullopt;
  L2 l2{kEthernetBytes, load_be<std::uint16_t>(&frame[12])};
  bool has_vlan = false;
  std::uint16_t tci = 0;
  if (l2.ether_type == kEtherTypeVlan) {
    if (frame.size() < kEthernetBytes + kVlanBytes) return std::nullopt;
    has_vlan = true;
    tci = load_be<std::uint16_t>(&frame[14]);
    l2 = {kEthernetBytes + kVlanBytes, load_be<std::uint16_t>(&frame[16])};
  }
  if (path != nullptr) {
    std::memcpy(path->destination_mac.data(), &frame[0], 6);
    std::memcpy(path->source_mac.data(), &frame[6], 6);
    path->has_vlan = has_vlan;
    path->vlan_tci = tci;
  }
  return l2;
}

// The L3 layer's outcome: the bytes of BTH ... ICRC.
struct L4 {
  DropReason reason = DropReason::none;
  std::size_t offset = 0;  // of what follows IP or GRH
  std::size_t length = 0;
};

L4 parse_ipv4(std::span<const std::byte> frame, std::size_t at, PathHeaders& path) {
  if (frame.size() < at + kIpv4Bytes) return {DropReason::truncated_header};
  const std::byte* ip = &frame[at];
  const auto version_ihl = std::to_integer<std::uint8_t>(ip[0]);
  const std::uint16_t total = load_be<std::uint16_t>(ip + 2);
  const std::uint16_t fragment = load_be<std::uint16_t>(ip + 6);
  // No options (A17.4.3), no fragments: more-fragments bit and offset are zero.
  if (version_ihl != 0x45 || (fragment & 0xbfff) != 0) return {DropReason::bad_ip_header};
  if (fold_checksum(sum_words(ip, kIpv4Bytes)) != 0) return {DropReason::bad_ip_header};
  if (total < kIpv4Bytes || total > frame.size() - at) return {DropReason::length_mismatch};
  if (std::to_integer<std::uint8_t>(ip[9]) != kProtocolUdp) return {DropReason::not_roce};
  path.kind = RoceKind::kV2Ipv4;
  path.traffic_class = std::to_integer<std::uint8_t>(ip[1]);
  path.ip_id = load_be<std::uint16_t>(ip + 4);
  path.dont_fragment = (fragment & 0x4000) != 0;
  path.hop_limit = std::to_integer<std::uint8_t>(ip[8]);
  path.flow_label = 0;
  path.source = map_ipv4(ip + 12);
  path.destination = map_ipv4(ip + 16);
  return {DropReason::none, at + kIpv4Bytes, total - kIpv4Bytes};
}

// IPv6 header, and the GRH of RoCE v1, which has the same layout (8.3).
L4 parse_ipv6(std::span<const std::byte> frame, std::size_t at, RoceKind kind, PathHeaders& path) {
  if (frame.size() < at + kIpv6Bytes) return {DropReason::truncated_header};
  const std::byte* ip = &frame[at];
  const std::uint32_t word = load_be<std::uint32_t>(ip);
  const std::uint16_t length = load_be<std::uint16_t>(ip + 4);
  if (word >> 28 != 6) return {DropReason::bad_ip_header};
  if (length > frame.size() - at - kIpv6Bytes) return {DropReason::length_mismatch};
  const auto next = std::to_integer<std::uint8_t>(ip[6]);
  if (next != (kind == RoceKind::kV1 ? kNextHeaderIba : kProtocolUdp))
    return {DropReason::not_roce};
  path.kind = kind;
  path.traffic_class = static_cast<std::uint8_t>(word >> 20);
  path.flow_label = word & 0xf'ffff;
  path.hop_limit = std::to_integer<std::uint8_t>(ip[7]);
  path.ip_id = 0;
  path.dont_fragment = true;
  std::memcpy(path.source.data(), ip + 8, 16);
  std::memcpy(path.destination.data(), ip + 24, 16);
  return {DropReason::none, at + kIpv6Bytes, length};
}

L4 parse_udp(std::span<const std::byte> frame, const L4& l3, PathHeaders& path) {
  if (l3.length < kUdpBytes) return {DropReason::truncated_header};
  const std::byte* udp = &frame[l3.offset];
  if (load_be<std::uint16_t>(udp + 2) != kRoceUdpPort) return {DropReason::not_roce};
  if (load_be<std::uint16_t>(udp + 4) != l3.length) return {DropReason::length_mismatch};
  path.udp_source_port = load_be<std::uint16_t>(udp);
  path.udp_checksum = load_be<std::uint16_t>(udp + 6);
  return {DropReason::none, l3.offset + kUdpBytes, l3.length - kUdpBytes};
}

void parse_bth(const std::byte* p, Bth& bth) {
  const auto flags = std::to_integer<std::uint8_t>(p[1]);
  const auto ecn = std::to_integer<std::uint8_t>(p[4]);
  const auto ack = std::to_integer<std::uint8_t>(p[8]);
  bth.opcode = static_cast<Opcode>(p[0]);
  bth.solicited = (flags & 0x80) != 0;
  bth.mig_req = (flags & 0x40) != 0;
  bth.pad_count = (flags >> 4) & 3;
  bth.transport_version = flags & 0xf;
  bth.pkey = load_be<std::uint16_t>(p + 2);
  bth.fecn = (ecn & 0x80) != 0;
  bth.becn = (ecn & 0x40) != 0;
  bth.reserved8a = ecn & 0x3f;
  bth.destination_qp = QpNum{load_be24(p + 5)};
  bth.ack_req = (ack & 0x80) != 0;
  bth.reserved8b = ack & 0x7f;
  bth.psn = Psn(load_be24(p + 9));
}

void write_bth(std::byte* p, const Bth& bth) {
  p[0] = static_cast<std::byte>(bth.opcode);
  p[1] = static_cast<std::byte>((bth.solicited ? 0x80 : 0) | (bth.mig_req ? 0x40 : 0) |
                                (bth.pad_count & 3) << 4 | (bth.transport_version & 0xf));
  store_be<std::uint16_t>(p + 2, bth.pkey);
  p[4] = static_cast<std::byte>((bth.fecn ? 0x80 : 0) | (bth.becn ? 0x40 : 0) |
                                (bth.reserved8a & 0x3f));
  store_be24(p + 5, bth.destination_qp.value);
  p[8] = static_cast<std::byte>((bth.ack_req ? 0x80 : 0) | (bth.reserved8b & 0x7f));
  store_be24(p + 9, bth.psn.value());
}

// Extended headers in wire order. `p` points past the BTH; the opcode's header_bytes are there.
void parse_extended(const std::byte* p, const OpcodeInfo& info, Packet& out) {
  if (info.has(kHasDeth)) {
    out.deth = {load_be<std::uint32_t>(p), QpNum{load_be24(p + 5)}};
    p += 8;
  }
  if (info.has(kHasFeth)) {
    const std::uint32_t word = load_be<std::uint32_t>(p);
    out.feth = {static_cast<std::uint8_t>(word & 0xf), static_cast<std::uint8_t>(word >> 4 & 3)};
    p += 4;
  }
  if (info.has(kHasReth)) {
    out.reth = {load_be<std::uint64_t>(p), load_be<std::uint32_t>(p + 8),
                load_be<std::uint32_t>(p + 12)};
    p += 16;
  }
  if (info.has(kHasAtomicEth)) {
    out.atomic = {load_be<std::uint64_t>(p), load_be<std::uint32_t>(p + 8),
                  load_be<std::uint64_t>(p + 12), load_be<std::uint64_t>(p + 20)};
    p += 28;
  }
  if (info.has(kHasAeth)) {
    out.aeth = {std::to_integer<std::uint8_t>(p[0]), load_be24(p + 1)};
    p += 4;
  }
  if (info.has(kHasAtomicAckEth)) {
    out.atomic_ack = {load_be<std::uint64_t>(p)};
    p += 8;
  }
  if (info.has(kHasSackEth)) {
    std::memcpy(out.sack.bitmap.data(), p, out.sack.bitmap.size());
    p += 16;
  }
  if (info.has(kHasImmDt)) {
    out.imm = {load_be<std::uint32_t>(p)};
    p += 4;
  }
  if (info.has(kHasIeth)) out.ieth = {load_be<std::uint32_t>(p)};
}

void write_extended(std::byte* p, const OpcodeInfo& info, const Packet& in) {
  if (info.has(kHasDeth)) {
    store_be<std::uint32_t>(p, in.deth.qkey);
    store_be<std::uint32_t>(p + 4, in.deth.source_qp.value & 0xff'ffff);
    p += 8;
  }
  if (info.has(kHasFeth)) {
    store_be<std::uint32_t>(p, (in.feth.placement_type & 0xfu) | (in.feth.selectivity_level & 3u)
                                                                     << 4);
    p += 4;
  }
  if (info.has(kHasReth)) {
    store_be<std::uint64_t>(p, in.reth.va);
    store_be<std::uint32_t>(p + 8, in.reth.rkey);
    store_be<std::uint32_t>(p + 12, in.reth.dma_length);
    p += 16;
  }
  if (info.has(kHasAtomicEth)) {
    store_be<std::uint64_t>(p, in.atomic.va);
    store_be<std::uint32_t>(p + 8, in.atomic.rkey);
    store_be<std::uint64_t>(p + 12, in.atomic.swap_or_add);
    store_be<std::uint64_t>(p + 20, in.atomic.compare);
    p += 28;
  }
  if (info.has(kHasAeth)) {
    p[0] = static_cast<std::byte>(in.aeth.syndrome);
    store_be24(p + 1, in.aeth.msn);
    p += 4;
  }
  if (info.has(kHasAtomicAckEth)) {
    store_be<std::uint64_t>(p, in.atomic_ack.original);
    p += 8;
  }
  if (info.has(kHasSackEth)) {
    std::memcpy(p, in.sack.bitmap.data(), in.sack.bitmap.size());
    p += 16;
  }
  if (info.has(kHasImmDt)) {
    store_be<std::uint32_t>(p, in.imm.value);
    p += 4;
  }
  if (info.has(kHasIeth)) store_be<std::uint32_t>(p, in.ieth.rkey);
}

// BTH and extended headers so that they end at `payload_start`; returns where they begin.
std::byte* write_transport(const Packet& packet, std::byte* payload_start) {
  const OpcodeInfo& info = packet.info();
  std::byte* bth = payload_start - info.header_bytes;
  write_bth(bth, packet.bth);
  if (info.operation == Operation::kCnp) {
    std::memset(bth + kBthBytes, 0, kCnpReservedBytes);
  } else {
    write_extended(bth + kBthBytes, info, packet);
  }
  return bth;
}

// Patches lengths (and the IPv4 checksum) of path headers at `start`; `below` bytes follow them,
// ICRC included.
void patch_lengths(std::byte* start, std::size_t path_bytes, std::size_t l3_offset, RoceKind kind,
                   std::uint32_t checksum_base, std::size_t below) {
  std::byte* ip = start + l3_offset;
  switch (kind) {
    case RoceKind::kV1:
      store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(below));
      return;
    case RoceKind::kV2Ipv6:
      store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(below + kUdpBytes));
      break;
    case RoceKind::kV2Ipv4: {
      const auto total = static_cast<std::uint16_t>(below + kUdpBytes + kIpv4Bytes);
      store_be<std::uint16_t>(ip + 2, total);
      store_be<std::uint16_t>(ip + 10, fold_checksum(checksum_base + total));
      break;
    }
  }
  store_be<std::uint16_t>(start + path_bytes - 4, static_cast<std::uint16_t>(below + kUdpBytes));
}

}  // namespace

FrameClass classify_frame(std::span<const std::byte> frame) {
  const auto l2 = parse_l2(frame, nullptr);
  if (!l2) return FrameClass::kOther;
  if (l2->ether_type == kEtherTypeRoceV1) return FrameClass::kRoce;
  std::size_t udp = 0;
  if (l2->ether_type == kEtherTypeIpv4 && frame.size() >= l2->l3_offset + kIpv4Bytes) {
    const auto ihl = std::to_integer<std::size_t>(frame[l2->l3_offset] & std::byte{0xf}) * 4;
    // A later fragment has no UDP header where one would be looked for.
    const bool is_first = (load_be<std::uint16_t>(&frame[l2->l3_offset + 6]) & 0x1fff) == 0;
    if (is_first && frame[l2->l3_offset + 9] == std::byte{kProtocolUdp}) udp = l2->l3_offset + ihl;
  } else if (l2->ether_type == kEtherTypeIpv6 && frame.size() >= l2->l3_offset + kIpv6Bytes) {
    if (frame[l2->l3_offset + 6] == std::byte{kProtocolUdp}) udp = l2->l3_offset + kIpv6Bytes;
  }
  const bool is_roce = udp != 0 && frame.size() >= udp + 4 &&
                       load_be<std::uint16_t>(&frame[udp + 2]) == kRoceUdpPort;
  return is_roce ? FrameClass::kRoce : FrameClass::kOther;
}

DropReason parse_packet(std::span<const std::byte> frame, Packet& out) {
  const auto l2 = parse_l2(frame, &out.path);
  if (!l2) return DropReason::truncated_header;
  L4 l4;
  out.path.udp_source_port = 0;
  out.path.udp_checksum = 0;
  switch (l2->ether_type) {
    case kEtherTypeIpv4:
      l4 = parse_ipv4(frame, l2->l3_offset, out.path);
      break;
    case kEtherTypeIpv6:
      l4 = parse_ipv6(frame, l2->l3_offset, RoceKind::kV2Ipv6, out.path);
      break;
    case kEtherTypeRoceV1:
      l4 = parse_ipv6(frame, l2->l3_offset, RoceKind::kV1, out.path);
      break;
    default:
      return DropReason::not_roce;
  }
  if (l4.reason == DropReason::none && out.path.kind != RoceKind::kV1) {
    l4 = parse_udp(frame, l4, out.path);
  }
  if (l4.reason != DropReason::none) return l4.reason;
  if (l4.length < kBthBytes + kIcrcBytes) return DropReason::truncated_header;

  const std::byte* bth = &frame[l4.offset];
  parse_bth(bth, out.bth);
  if (out.bth.transport_version != 0) return DropReason::bad_transport_version;
  const OpcodeInfo& info = out.info();
  if (!info.is_valid()) return DropReason::unknown_opcode;
  if (l4.length < std::size_t{info.header_bytes} + kIcrcBytes) return DropReason::truncated_header;
  const std::size_t body = l4.length - info.header_bytes - kIcrcBytes;
  if (body < out.bth.pad_count || (body & 3) != 0) return DropReason::bad_payload_length;
  const std::size_t payload_bytes = body - out.bth.pad_count;
  if (!info.carries_payload && body != 0) return DropReason::bad_payload_length;

  if (info.operation != Operation::kCnp) parse_extended(bth + kBthBytes, info, out);
  out.l3_offset = static_cast<std::uint16_t>(l2->l3_offset);
  out.bth_offset = static_cast<std::uint16_t>(l4.offset);
  out.header_bytes = static_cast<std::uint16_t>(l4.offset + info.header_bytes);
  out.payload = frame.subspan(out.header_bytes, payload_bytes);
  out.icrc = load_icrc(&frame[out.header_bytes + body]);
  return DropReason::none;
}

bool check_icrc(std::span<const std::byte> frame, const Packet& packet) {
  const Icrc begin = icrc_begin(frame.first(packet.header_bytes), packet.l3_offset,
                                packet.path.kind == RoceKind::kV1);
  const std::size_t body = packet.payload.size() + packet.bth.pad_count;
  return icrc_finish(icrc_update(begin, frame.subspan(packet.header_bytes, body))) == packet.icrc;
}

std::size_t path_header_bytes(const PathHeaders& path) {
  const std::size_t l2 = kEthernetBytes + (path.has_vlan ? kVlanBytes : 0);
  switch (path.kind) {
    case RoceKind::kV1:
      return l2 + kIpv6Bytes;
    case RoceKind::kV2Ipv4:
      return l2 + kIpv4Bytes + kUdpBytes;
    case RoceKind::kV2Ipv6:
      return l2 + kIpv6Bytes + kUdpBytes;
  }
  return l2;
}

PathTemplate make_path_template(const PathHeaders& path) {
  PathTemplate out;
  std::byte* p = out.bytes.data();
  std::memcpy(p, path.destination_mac.data(), 6);
  std::memcpy(p + 6, path.source_mac.data(), 6);
  p += 12;
  if (path.has_vlan) {
    store_be<std::uint16_t>(p, kEtherTypeVlan);
    store_be<std::uint16_t>(p + 2, path.vlan_tci);
    p += 4;
  }
  const bool is_v4 = path.kind == RoceKind::kV2Ipv4;
  out.kind = path.kind;
  store_be<std::uint16_t>(p, is_v4                            ? kEtherTypeIpv4
                             : path.kind == RoceKind::kV2Ipv6 ? kEtherTypeIpv6
                                                              : kEtherTypeRoceV1);
  p += 2;
  out.l3_offset = static_cast<std::uint8_t>(p - out.bytes.data());
  if (is_v4) {
    p[0] = std::byte{0x45};
    p[1] = static_cast<std::byte>(path.traffic_class);
    store_be<std::uint16_t>(p + 4, path.ip_id);
    store_be<std::uint16_t>(p + 6, path.dont_fragment ? 0x4000 : 0);
    p[8] = static_cast<std::byte>(path.hop_limit);
    p[9] = std::byte{kProtocolUdp};
    std::memcpy(p + 12, &path.source[12], 4);
    std::memcpy(p + 16, &path.destination[12], 4);
    out.ip_checksum_base = sum_words(p, kIpv4Bytes);
    p += kIpv4Bytes;
  } else {
    store_be<std::uint32_t>(
        p, 6u << 28 | std::uint32_t{path.traffic_class} << 20 | (path.flow_label & 0xf'ffff));
    p[6] = static_cast<std::byte>(path.kind == RoceKind::kV1 ? kNextHeaderIba : kProtocolUdp);
    p[7] = static_cast<std::byte>(path.hop_limit);
    std::memcpy(p + 8, path.source.data(), 16);
    std::memcpy(p + 24, path.destination.data(), 16);
    p += kIpv6Bytes;
  }
  if (path.kind != RoceKind::kV1) {
    store_be<std::uint16_t>(p, path.udp_source_port);
    store_be<std::uint16_t>(p + 2, kRoceUdpPort);
    store_be<std::uint16_t>(p + 6, path.udp_checksum);
    p += kUdpBytes;
  }
  out.length = static_cast<std::uint8_t>(p - out.bytes.data());
  return out;
}

std::size_t write_headers(const PathTemplate& path, const Packet& transport,
                          std::size_t payload_bytes, std::byte* payload_start) {
  std::byte* bth = write_transport(transport, payload_start);
  std::byte* start = bth - path.length;
  std::memcpy(start, path.bytes.data(), path.length);
  const auto transport_bytes = static_cast<std::size_t>(payload_start - bth);
  patch_lengths(start, path.length, path.l3_offset, path.kind, path.ip_checksum_base,
                transport_bytes + payload_bytes + transport.bth.pad_count + kIcrcBytes);
  return static_cast<std::size_t>(payload_start - start);
}

std::size_t write_headers(const Packet& packet, std::size_t payload_bytes,
                          std::byte* payload_start) {
  return write_headers(make_path_template(packet.path), packet, payload_bytes, payload_start);
}

std::size_t finish_frame(std::byte* frame, std::size_t header_bytes, std::size_t l3_offset,
                         RoceKind kind, std::size_t payload_bytes) {
  const std::size_t pad = pad_count(payload_bytes);
  std::byte* payload = frame + header_bytes;
  std::memset(payload + payload_bytes, 0, pad);
  const Icrc crc = icrc_update(icrc_begin({frame, header_bytes}, l3_offset, kind == RoceKind::kV1),
                               {payload, payload_bytes + pad});
  store_icrc(payload + payload_bytes + pad, icrc_finish(crc));
  return header_bytes + payload_bytes + pad + kIcrcBytes;
}

}  // namespace rocemu::wire
