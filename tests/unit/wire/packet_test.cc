// Frames both ways: known-good frames as text (made by scapy, or packed by hand in Python with
// zlib's CRC, from the clauses named), and round trips of every shape with random fields.
#include "dataplane/wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

using test::ExactBlock;
using test::Frame;
using test::PathForm;

Packet parse_golden(const Frame& frame) {
  Packet packet;
  EXPECT_EQ(classify_frame(frame), FrameClass::kRoce);
  EXPECT_EQ(parse_packet(frame, packet), DropReason::none);
  EXPECT_TRUE(check_icrc(frame, packet));
  EXPECT_EQ(test::encode(packet, packet.payload, PathForm::kHeaders), frame);
  EXPECT_EQ(test::encode(packet, packet.payload, PathForm::kTemplate), frame);
  return packet;
}
Packet parse_golden(Frame&& frame) = delete;  // the payload points into the frame

constexpr MacAddress kMac1 = {0x02, 0, 0x52, 0x6f, 0, 1};
constexpr MacAddress kMac2 = {0x02, 0, 0x52, 0x6f, 0, 2};
constexpr Gid kIpv4Host1 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 100, 0, 1};
constexpr Gid kIpv6Host2 = {0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

TEST(GoldenFrame, AcknowledgeOverIpv4) {  // 9.7.5.1
  const Frame frame = test::from_hex(
      "0200526f00020200526f000108004502003000014000401125f00a6400010a64"
      "0002c00012b7001c00001140ffff0000001100fffffe1f010203070b20a4");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.path.kind, RoceKind::kV2Ipv4);
  EXPECT_EQ(p.path.destination_mac, kMac2);
  EXPECT_EQ(p.path.source_mac, kMac1);
  EXPECT_FALSE(p.path.has_vlan);
  EXPECT_EQ(p.path.source, kIpv4Host1);
  EXPECT_EQ(p.path.traffic_class, 2);
  EXPECT_EQ(p.path.hop_limit, 64);
  EXPECT_EQ(p.path.ip_id, 1);
  EXPECT_TRUE(p.path.dont_fragment);
  EXPECT_EQ(p.path.udp_source_port, 0xc000);
  EXPECT_EQ(p.bth.opcode, Opcode::kRcAcknowledge);
  EXPECT_TRUE(p.bth.mig_req);
  EXPECT_EQ(p.bth.pkey, 0xffff);
  EXPECT_EQ(p.bth.destination_qp, QpNum{0x11});
  EXPECT_EQ(p.bth.psn, Psn(0xff'fffe));
  EXPECT_EQ(p.aeth.syndrome, 0x1f);
  EXPECT_EQ(p.aeth.msn, 0x01'0203u);
  EXPECT_EQ(p.icrc, 0xa420'0b07u);
}

TEST(GoldenFrame, CongestionNotification) {  // A17.9.3
  const Frame frame = test::from_hex(
      "0200526f00020200526f0001080045c0003c00070000ff11a61f0a6400010a64"
      "0002c00012b7002800008140ffff400000110000000000000000000000000000"
      "000000000000c85894e2");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.bth.opcode, Opcode::kCnp);
  EXPECT_TRUE(p.bth.becn);
  EXPECT_FALSE(p.bth.fecn);
  EXPECT_FALSE(p.path.dont_fragment);
  EXPECT_EQ(p.path.hop_limit, 255);
  EXPECT_TRUE(p.payload.empty());
}

TEST(GoldenFrame, FlushOverIpv6) {  // A19: FETH, then RETH
  const Frame frame = test::from_hex(
      "0200526f00020200526f000186dd668abcde002c1111fd000100000000000000"
      "000000000001fd000100000000000000000000000002ffff12b7002c00001c40"
      "ffff00abcdef8012345600000013112233445566778899aabbccddeeff003913"
      "b180");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.path.kind, RoceKind::kV2Ipv6);
  EXPECT_EQ(p.path.destination, kIpv6Host2);
  EXPECT_EQ(p.path.traffic_class, 0x68);
  EXPECT_EQ(p.path.flow_label, 0xa'bcdeu);
  EXPECT_EQ(p.path.hop_limit, 17);
  EXPECT_EQ(p.bth.opcode, Opcode::kRcFlush);
  EXPECT_EQ(p.bth.destination_qp, QpNum{0xab'cdef});
  EXPECT_TRUE(p.bth.ack_req);
  EXPECT_EQ(p.bth.psn, Psn(0x12'3456));
  EXPECT_EQ(p.feth.placement_type, 3);
  EXPECT_EQ(p.feth.selectivity_level, 1);
  EXPECT_EQ(p.reth.va, 0x1122'3344'5566'7788u);
  EXPECT_EQ(p.reth.rkey, 0x99aa'bbccu);
  EXPECT_EQ(p.reth.dma_length, 0xddee'ff00u);
}

TEST(GoldenFrame, AtomicWriteCarriesItsEightBytesAsPayload) {  // A19
  const Frame frame = test::from_hex(
      "0200526f00020200526f00010800451a004412344000401113910a6400010a64"
      "0002c12312b7003000001d40ffff000000118000000000007f00000010000000"
      "12340000000801020304050607087b5ab595");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.bth.opcode, Opcode::kRcAtomicWrite);
  EXPECT_EQ(p.reth.va, 0x7f00'0000'1000u);
  EXPECT_EQ(p.reth.rkey, 0x1234u);
  EXPECT_EQ(p.reth.dma_length, 8u);
  EXPECT_TRUE(std::ranges::equal(p.payload, test::from_hex("0102030405060708")));
}

TEST(GoldenFrame, SendOverRoceV1WithPad) {  // A16: GRH behind EtherType 0x8915
  const Frame frame = test::from_hex(
      "0200526f00020200526f000189156030000500141bfffe800000000000000000"
      "52fffe6f0001fe80000000000000000052fffe6f000204f0ffff0000001100ff"
      "ffff410000000d3caebe");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.path.kind, RoceKind::kV1);
  EXPECT_EQ(p.path.traffic_class, 3);
  EXPECT_EQ(p.path.flow_label, 5u);
  EXPECT_EQ(p.path.udp_source_port, 0);
  EXPECT_EQ(p.bth.pad_count, 3);
  EXPECT_TRUE(p.bth.solicited);
  EXPECT_TRUE(std::ranges::equal(p.payload, test::from_hex("41")));
}

TEST(GoldenFrame, SelectiveAcknowledge) {
  const Frame frame = test::from_hex(
      "0200526f00020200526f00010800451a004012344000401113950a6400010a64"
      "0002c12312b7002c0000c040ffff00000011000000091f000005800000000000"
      "0000000000000000000115238d6c");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.bth.opcode, Opcode::kRcSack);
  EXPECT_EQ(p.aeth.msn, 5u);
  EXPECT_EQ(p.sack.bitmap.front(), 0x80);
  EXPECT_EQ(p.sack.bitmap.back(), 0x01);
}

TEST(GoldenFrame, DatagramWithImmediateOnAVlanOverIpv6) {  // 9.3.2, 9.3.6
  const Frame frame = test::from_hex(
      "0200526f00020200526f00018100606486dd668abcde00281111fd0001000000"
      "00000000000000000001fd000100000000000000000000000002ffff12b70028"
      "00006510ffff00000001000000008001000000000001deadbeef78797a0000e8"
      "6300");
  const Packet p = parse_golden(frame);
  EXPECT_TRUE(p.path.has_vlan);
  EXPECT_EQ(p.path.vlan_tci, 0x6064);
  EXPECT_FALSE(p.bth.mig_req);
  EXPECT_EQ(p.deth.qkey, 0x8001'0000u);
  EXPECT_EQ(p.deth.source_qp, QpNum{1});
  EXPECT_EQ(p.imm.value, 0xdead'beefu);
  EXPECT_TRUE(std::ranges::equal(p.payload, test::from_hex("78797a")));
}

TEST(GoldenFrame, CompareAndSwapOnAVlan) {  // 9.3.4: VA, key, swap, compare
  const Frame frame = test::from_hex(
      "0200526f00020200526f000181000fff0800451a0048123440004011138d0a64"
      "00010a640002c12312b7003400001340ffff000000118000000000007f000000"
      "1000000012340102030405060708a1a2a3a4a5a6a7a8b8c17b37");
  const Packet p = parse_golden(frame);
  EXPECT_EQ(p.bth.opcode, Opcode::kRcCompareSwap);
  EXPECT_EQ(p.atomic.va, 0x7f00'0000'1000u);
  EXPECT_EQ(p.atomic.rkey, 0x1234u);
  EXPECT_EQ(p.atomic.swap_or_add, 0x0102'0304'0506'0708u);
  EXPECT_EQ(p.atomic.compare, 0xa1a2'a3a4'a5a6'a7a8u);
}

TEST(Frame, EveryShapeComesBackAsItWasWritten) {
  Prng prng(31);
  for (const test::Shape& shape : test::all_shapes()) {
    for (const std::size_t n : test::payload_sizes(shape.opcode)) {
      const Frame payload = test::random_bytes(n, prng);
      const Packet written = test::random_packet(shape, n, prng);
      SCOPED_TRACE(std::string(written.info().name) + " payload " + std::to_string(n));
      const Frame frame = test::encode(written, payload, PathForm::kHeaders);
      ASSERT_EQ(test::encode(written, payload, PathForm::kTemplate), frame);
      ASSERT_EQ(frame.size(), path_header_bytes(written.path) + written.info().header_bytes + n +
                                  pad_count(n) + kIcrcBytes);
      const ExactBlock block(frame);
      Packet read;
      ASSERT_EQ(classify_frame(block.bytes()), FrameClass::kRoce);
      ASSERT_EQ(parse_packet(block.bytes(), read), DropReason::none);
      test::expect_sound(block.bytes(), read);
      test::expect_same_fields(written, read);
      ASSERT_TRUE(std::ranges::equal(read.payload, payload));
      ASSERT_TRUE(check_icrc(block.bytes(), read));
    }
  }
}

TEST(Frame, HeaderRoomIsEnoughForEveryShape) {
  for (const test::Shape& shape : test::all_shapes()) {
    PathHeaders path;
    path.kind = shape.kind;
    path.has_vlan = shape.has_vlan;
    EXPECT_LE(path_header_bytes(path) + opcode_info(shape.opcode).header_bytes, kMaxHeaderBytes);
  }
}

TEST(Frame, PadIsZeroAndFillsToFourBytes) {
  EXPECT_EQ(pad_count(0), 0);
  EXPECT_EQ(pad_count(1), 3);
  EXPECT_EQ(pad_count(3), 1);
  EXPECT_EQ(pad_count(4096), 0);
  Prng prng(32);
  const test::Shape shape{Opcode::kRcSendOnly, RoceKind::kV2Ipv4, false};
  const Frame frame = test::encode(test::random_packet(shape, 1, prng), test::random_bytes(1, prng),
                                   PathForm::kHeaders);
  ASSERT_GE(frame.size(), 7u);
  EXPECT_TRUE(
      std::all_of(frame.end() - 7, frame.end() - 4, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Frame, TrailingEthernetPaddingIsNotPayload) {
  Prng prng(33);
  for (const RoceKind kind : {RoceKind::kV1, RoceKind::kV2Ipv4, RoceKind::kV2Ipv6}) {
    const Packet written = test::random_packet({Opcode::kRcSendOnly, kind, false}, 5, prng);
    Frame frame = test::encode(written, test::random_bytes(5, prng), PathForm::kHeaders);
    for (int extra = 0; extra < 20; ++extra) {
      frame.push_back(std::byte{0xcc});
      Packet read;
      ASSERT_EQ(parse_packet(frame, read), DropReason::none);
      EXPECT_EQ(read.payload.size(), 5u);
      EXPECT_TRUE(check_icrc(frame, read));
    }
  }
}

TEST(Frame, APacketUsedAgainKeepsNothingOfThePathBefore) {
  Prng prng(34);
  Packet read;
  for (int i = 0; i < 200; ++i) {
    const auto shapes = test::all_shapes();
    const test::Shape shape = shapes[prng.below(shapes.size())];
    const Packet written = test::random_packet(shape, 0, prng);
    const Frame frame = test::encode(written, {}, PathForm::kHeaders);
    ASSERT_EQ(parse_packet(frame, read), DropReason::none);
    test::expect_same_fields(written, read);
  }
}

TEST(Frame, TheTemplateCarriesAnyLength) {
  // IPv4's checksum changes with the length: the template's partial sum is folded right for each.
  Prng prng(35);
  const test::Shape shape{Opcode::kRcWriteMiddle, RoceKind::kV2Ipv4, true};
  const Frame payload = test::random_bytes(4096, prng);
  for (std::size_t n = 0; n <= 4096; ++n) {
    const Packet written = test::random_packet(shape, n, prng);
    const Frame frame = test::encode(written, std::span(payload).first(n), PathForm::kTemplate);
    Packet read;
    ASSERT_EQ(parse_packet(frame, read), DropReason::none) << n;
    ASSERT_EQ(read.payload.size(), n);
  }
}

}  // namespace
}  // namespace rocemu::wire
