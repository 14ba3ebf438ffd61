#include "tests/unit/wire/frames.h"

#include <gtest/gtest.h>

#include <array>

namespace rocemu::wire::test {
namespace {

template <typename Array>
void fill(Array& array, Prng& prng) {
  for (auto& byte : array) byte = static_cast<std::uint8_t>(prng.next());
}

std::uint16_t random16(Prng& prng) { return static_cast<std::uint16_t>(prng.next()); }
std::uint32_t random32(Prng& prng) { return static_cast<std::uint32_t>(prng.next()); }
std::uint8_t random_bits(Prng& prng, unsigned bits) {
  return static_cast<std::uint8_t>(prng.next() >> (64 - bits));
}

PathHeaders random_path(const Shape& shape, Prng& prng) {
  PathHeaders path;
  path.kind = shape.kind;
  fill(path.destination_mac, prng);
  fill(path.source_mac, prng);
  path.has_vlan = shape.has_vlan;
  path.vlan_tci = shape.has_vlan ? random16(prng) : std::uint16_t{0};
  fill(path.source, prng);
  fill(path.destination, prng);
  path.traffic_class = random_bits(prng, 8);
  path.hop_limit = random_bits(prng, 8);
  if (shape.kind == RoceKind::kV2Ipv4) {
    for (Gid* gid : {&path.source, &path.destination}) {
      gid->fill(0);
      (*gid)[10] = (*gid)[11] = 0xff;
      for (std::size_t i = 12; i < 16; ++i) (*gid)[i] = random_bits(prng, 8);
    }
    path.ip_id = random16(prng);
    path.dont_fragment = prng.below(2) == 0;
  } else {
    path.flow_label = random32(prng) & 0xf'ffff;
  }
  if (shape.kind != RoceKind::kV1) {
    path.udp_source_port = random16(prng);
    path.udp_checksum = random16(prng);
  }
  return path;
}

void expect_same_path(const PathHeaders& a, const PathHeaders& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.destination_mac, b.destination_mac);
  EXPECT_EQ(a.source_mac, b.source_mac);
  EXPECT_EQ(a.has_vlan, b.has_vlan);
  EXPECT_EQ(a.vlan_tci, b.vlan_tci);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.destination, b.destination);
  EXPECT_EQ(a.traffic_class, b.traffic_class);
  EXPECT_EQ(a.hop_limit, b.hop_limit);
  EXPECT_EQ(a.flow_label, b.flow_label);
  EXPECT_EQ(a.ip_id, b.ip_id);
  EXPECT_EQ(a.dont_fragment, b.dont_fragment);
  EXPECT_EQ(a.udp_source_port, b.udp_source_port);
  EXPECT_EQ(a.udp_checksum, b.udp_checksum);
}

void expect_same_bth(const Bth& a, const Bth& b) {
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.mig_req, b.mig_req);
  EXPECT_EQ(a.pad_count, b.pad_count);
  EXPECT_EQ(a.transport_version, b.transport_version);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.fecn, b.fecn);
  EXPECT_EQ(a.becn, b.becn);
  EXPECT_EQ(a.reserved8a, b.reserved8a);
  EXPECT_EQ(a.destination_qp, b.destination_qp);
  EXPECT_EQ(a.ack_req, b.ack_req);
  EXPECT_EQ(a.reserved8b, b.reserved8b);
  EXPECT_EQ(a.psn, b.psn);
}

}  // namespace

Frame from_hex(std::string_view text) {
  Frame out;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    out.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return out;
}

std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> out;
  for (int code = 0; code < 256; ++code) {
    if (opcode_info(static_cast<Opcode>(code)).is_valid()) out.push_back(static_cast<Opcode>(code));
  }
  return out;
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> out;
  for (const Opcode opcode : known_opcodes()) {
    for (const RoceKind kind : {RoceKind::kV1, RoceKind::kV2Ipv4, RoceKind::kV2Ipv6}) {
      for (const bool has_vlan : {false, true}) out.push_back({opcode, kind, has_vlan});
    }
  }
  return out;
}

Packet random_packet(const Shape& shape, std::size_t payload_bytes, Prng& prng) {
  Packet p;
  p.path = random_path(shape, prng);
  p.bth = {.opcode = shape.opcode,
           .solicited = prng.below(2) == 0,
           .mig_req = prng.below(2) == 0,
           .pad_count = pad_count(payload_bytes),
           .transport_version = 0,
           .pkey = random16(prng),
           .fecn = prng.below(2) == 0,
           .becn = prng.below(2) == 0,
           .reserved8a = random_bits(prng, 6),
           .destination_qp = QpNum{random32(prng) & 0xff'ffff},
           .ack_req = prng.below(2) == 0,
           .reserved8b = random_bits(prng, 7),
           .psn = Psn(random32(prng))};
  p.reth = {prng.next(), random32(prng), random32(prng)};
  p.aeth = {random_bits(prng, 8), random32(prng) & 0xff'ffff};
  p.atomic = {prng.next(), random32(prng), prng.next(), prng.next()};
  p.atomic_ack = {prng.next()};
  p.deth = {random32(prng), QpNum{random32(prng) & 0xff'ffff}};
  p.ieth = {random32(prng)};
  p.imm = {random32(prng)};
  p.feth = {random_bits(prng, 4), random_bits(prng, 2)};
  fill(p.sack.bitmap, prng);
  return p;
}

Frame random_bytes(std::size_t n, Prng& prng) {
  Frame out(n);
  for (auto& byte : out) byte = static_cast<std::byte>(prng.next());
  return out;
}

Frame encode(const Packet& packet, std::span<const std::byte> payload, PathForm form) {
  Frame room(kMaxHeaderBytes + payload.size() + 3 + kIcrcBytes, std::byte{0xee});
  std::byte* at = room.data() + kMaxHeaderBytes;
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  const std::size_t headers =
      form == PathForm::kHeaders
          ? write_headers(packet, payload.size(), at)
          : write_headers(make_path_template(packet.path), packet, payload.size(), at);
  const std::size_t l3_offset = kEthernetBytes + (packet.path.has_vlan ? kVlanBytes : 0);
  const std::size_t length =
      finish_frame(at - headers, headers, l3_offset, packet.path.kind, payload.size());
  return Frame(at - headers, at - headers + length);
}

std::vector<std::size_t> payload_sizes(Opcode opcode) {
  if (!opcode_info(opcode).carries_payload) return {0};
  return {0, 1, 2, 3, 4, 5, 257, 1024};
}

void expect_sound(std::span<const std::byte> frame, const Packet& packet) {
  const OpcodeInfo& info = packet.info();
  ASSERT_TRUE(info.is_valid());
  ASSERT_GE(packet.l3_offset, kEthernetBytes);
  ASSERT_GT(packet.bth_offset, packet.l3_offset);
  ASSERT_EQ(packet.bth_offset + info.header_bytes, packet.header_bytes);
  ASSERT_LE(packet.header_bytes, kMaxHeaderBytes);
  ASSERT_LE(packet.bth.pad_count, 3);
  ASSERT_EQ((packet.payload.size() + packet.bth.pad_count) % 4, 0u);
  ASSERT_LE(packet.header_bytes + packet.payload.size() + packet.bth.pad_count + kIcrcBytes,
            frame.size());
  ASSERT_EQ(packet.payload.data(), frame.data() + packet.header_bytes);
  ASSERT_TRUE(info.carries_payload || packet.payload.empty());
}

void expect_same_fields(const Packet& a, const Packet& b) {
  expect_same_path(a.path, b.path);
  expect_same_bth(a.bth, b.bth);
  const OpcodeInfo& info = a.info();
  if (info.has(kHasReth)) {
    EXPECT_EQ(a.reth.va, b.reth.va);
    EXPECT_EQ(a.reth.rkey, b.reth.rkey);
    EXPECT_EQ(a.reth.dma_length, b.reth.dma_length);
  }
  if (info.has(kHasAeth)) {
    EXPECT_EQ(a.aeth.syndrome, b.aeth.syndrome);
    EXPECT_EQ(a.aeth.msn, b.aeth.msn);
  }
  if (info.has(kHasAtomicEth)) {
    EXPECT_EQ(a.atomic.va, b.atomic.va);
    EXPECT_EQ(a.atomic.rkey, b.atomic.rkey);
    EXPECT_EQ(a.atomic.swap_or_add, b.atomic.swap_or_add);
    EXPECT_EQ(a.atomic.compare, b.atomic.compare);
  }
  if (info.has(kHasAtomicAckEth)) {
    EXPECT_EQ(a.atomic_ack.original, b.atomic_ack.original);
  }
  if (info.has(kHasDeth)) {
    EXPECT_EQ(a.deth.qkey, b.deth.qkey);
    EXPECT_EQ(a.deth.source_qp, b.deth.source_qp);
  }
  if (info.has(kHasIeth)) {
    EXPECT_EQ(a.ieth.rkey, b.ieth.rkey);
  }
  if (info.has(kHasImmDt)) {
    EXPECT_EQ(a.imm.value, b.imm.value);
  }
  if (info.has(kHasFeth)) {
    EXPECT_EQ(a.feth.placement_type, b.feth.placement_type);
    EXPECT_EQ(a.feth.selectivity_level, b.feth.selectivity_level);
  }
  if (info.has(kHasSackEth)) {
    EXPECT_EQ(a.sack.bitmap, b.sack.bitmap);
  }
}

}  // namespace rocemu::wire::test
