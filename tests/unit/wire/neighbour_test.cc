// ARP and neighbour discovery: known-good frames (made by scapy, checksums and all), both ways, and
// what must be refused.
#include "dataplane/wire/neighbour.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "rocemu/base/bytes.h"
#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

using test::ExactBlock;
using test::Frame;

constexpr MacAddress kMac1 = {0x02, 0, 0x52, 0x6f, 0, 1};
constexpr MacAddress kMac2 = {0x02, 0, 0x52, 0x6f, 0, 2};
constexpr Gid kIpv4Host1 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 100, 0, 1};
constexpr Gid kIpv4Host2 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 100, 0, 2};
constexpr Gid kIpv6Host1 = {0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kIpv6Host2 = {0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

Frame arp_request() {
  return test::from_hex(
      "ffffffffffff0200526f0001080600010800060400010200526f00010a6400010000000000000a64"
      "0002");
}
Frame arp_reply_on_vlan() {
  return test::from_hex(
      "0200526f00010200526f000281006064080600010800060400020200526f00020a6400020200526f"
      "00010a640001");
}
Frame solicitation() {
  return test::from_hex(
      "3333ff0000020200526f000186dd6000000000203afffd000100000000000000000000000001ff02"
      "00000000000000000001ff0000028700292800000000fd0001000000000000000000000000020101"
      "0200526f0001");
}
Frame advertisement() {
  return test::from_hex(
      "0200526f00010200526f000286dd6000000000203afffd000100000000000000000000000002fd00"
      "01000000000000000000000000018800c72a60000000fd0001000000000000000000000000020201"
      "0200526f0002");
}

constexpr std::size_t kIp = 14;
constexpr std::size_t kIcmp = kIp + kIpv6Bytes;

void fix_icmp_checksum(Frame& frame) {
  store_be<std::uint16_t>(&frame[kIcmp + 2], 0);
  const std::size_t length = load_be<std::uint16_t>(&frame[kIp + 4]);
  std::uint32_t sum = static_cast<std::uint32_t>(length) + 58;
  for (std::size_t i = 8; i + 1 < kIpv6Bytes + length; i += 2) {
    sum += load_be<std::uint16_t>(&frame[kIp + i]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  store_be<std::uint16_t>(&frame[kIcmp + 2], static_cast<std::uint16_t>(~sum));
}

void expect_message(const Frame& frame, const Neighbour& expected) {
  const ExactBlock block(frame);
  const auto message = parse_neighbour(block.bytes());
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, expected.kind);
  EXPECT_EQ(message->sender_mac, expected.sender_mac);
  EXPECT_EQ(message->sender, expected.sender);
  EXPECT_EQ(message->target, expected.target);
}

TEST(Neighbour, ArpRequest) {
  const Neighbour m{NeighbourKind::kRequest, kMac1, kIpv4Host1, {}, kIpv4Host2};
  EXPECT_EQ(make_neighbour_frame(m, std::nullopt), arp_request());
  expect_message(arp_request(), m);
}

TEST(Neighbour, ArpReplyOnAVlan) {
  const Neighbour m{NeighbourKind::kReply, kMac2, kIpv4Host2, kMac1, kIpv4Host1};
  EXPECT_EQ(make_neighbour_frame(m, 0x6064), arp_reply_on_vlan());
  expect_message(arp_reply_on_vlan(), m);
}

TEST(Neighbour, Solicitation) {
  const Neighbour m{NeighbourKind::kRequest, kMac1, kIpv6Host1, {}, kIpv6Host2};
  EXPECT_EQ(make_neighbour_frame(m, std::nullopt), solicitation());
  expect_message(solicitation(), m);
}

TEST(Neighbour, Advertisement) {
  const Neighbour m{NeighbourKind::kReply, kMac2, kIpv6Host2, kMac1, kIpv6Host1};
  EXPECT_EQ(make_neighbour_frame(m, std::nullopt), advertisement());
  expect_message(advertisement(), m);
}

TEST(Neighbour, SolicitationOnAVlanComesBack) {
  const Neighbour m{NeighbourKind::kRequest, kMac1, kIpv6Host1, {}, kIpv6Host2};
  const Frame frame = make_neighbour_frame(m, 0x0007);
  EXPECT_EQ(frame.size(), solicitation().size() + 4);
  expect_message(frame, m);
}

TEST(Neighbour, PaddingToTheLeastEthernetFrameIsTolerated) {
  Frame frame = arp_request();
  frame.resize(60);
  EXPECT_TRUE(parse_neighbour(frame));
}

TEST(Neighbour, ForeignOptionsAreSkipped) {
  Frame frame = solicitation();
  // A nonce (RFC 3971) before the link-layer address.
  const Frame nonce = test::from_hex("0e01aabbccddeeff");
  frame.insert(frame.begin() + kIcmp + 24, nonce.begin(), nonce.end());
  store_be<std::uint16_t>(&frame[kIp + 4], 40);
  fix_icmp_checksum(frame);
  const auto message = parse_neighbour(frame);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->sender_mac, kMac1);
}

struct Wound {
  const char* name;
  std::function<Frame()> make;
  std::function<void(Frame&)> inflict;
};

TEST(Neighbour, WhatIsBrokenIsRefused) {
  const std::vector<Wound> wounds = {
      {"ARP hardware type", arp_request, [](Frame& f) { f[15] = std::byte{6}; }},
      {"ARP protocol", arp_request, [](Frame& f) { f[16] = std::byte{0x86}; }},
      {"ARP address lengths", arp_request, [](Frame& f) { f[18] = std::byte{8}; }},
      {"ARP operation 0", arp_request, [](Frame& f) { f[21] = std::byte{0}; }},
      {"ARP operation 3", arp_request, [](Frame& f) { f[21] = std::byte{3}; }},
      {"ARP from a group MAC", arp_request, [](Frame& f) { f[22] = std::byte{3}; }},
      {"ARP from a zero MAC", arp_request, [](Frame& f) { std::fill_n(&f[22], 6, std::byte{0}); }},
      {"ARP from a multicast address", arp_request, [](Frame& f) { f[28] = std::byte{0xe0}; }},
      {"ND checksum", solicitation, [](Frame& f) { f[kIcmp + 2] ^= std::byte{1}; }},
      {"ND that was routed", solicitation, [](Frame& f) { f[kIp + 7] = std::byte{254}; }},
      {"ND in IP version 4", solicitation, [](Frame& f) { f[kIp] = std::byte{0x40}; }},
      {"not ICMPv6", solicitation, [](Frame& f) { f[kIp + 6] = std::byte{17}; }},
      {"echo request", solicitation,
       [](Frame& f) {
         f[kIcmp] = std::byte{128};
         fix_icmp_checksum(f);
       }},
      {"ND code", solicitation,
       [](Frame& f) {
         f[kIcmp + 1] = std::byte{1};
         fix_icmp_checksum(f);
       }},
      {"ND longer than the frame", solicitation,
       [](Frame& f) { store_be<std::uint16_t>(&f[kIp + 4], 40); }},
      {"ND shorter than its target", solicitation,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 4], 22);
         fix_icmp_checksum(f);
       }},
      {"multicast target", solicitation,
       [](Frame& f) {
         f[kIcmp + 8] = std::byte{0xff};
         fix_icmp_checksum(f);
       }},
      {"no source", solicitation,
       [](Frame& f) {
         std::fill_n(&f[kIp + 8], 16, std::byte{0});
         fix_icmp_checksum(f);
       }},
      {"option of length 0", solicitation,
       [](Frame& f) {
         f[kIcmp + 25] = std::byte{0};
         fix_icmp_checksum(f);
       }},
      {"option past the end", solicitation,
       [](Frame& f) {
         f[kIcmp + 25] = std::byte{2};
         fix_icmp_checksum(f);
       }},
      {"option cut off", solicitation,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 4], 31);
         f[kIp + kIpv6Bytes + 31] = std::byte{0};
         fix_icmp_checksum(f);
       }},
      {"another option only", solicitation,
       [](Frame& f) {
         f[kIcmp + 24] = std::byte{2};
         fix_icmp_checksum(f);
       }},
      {"group MAC", advertisement,
       [](Frame& f) {
         f[kIcmp + 26] = std::byte{0x33};
         fix_icmp_checksum(f);
       }},
      {"solicited advertisement to a group", advertisement,
       [](Frame& f) {
         f[kIp + 24] = std::byte{0xff};
         fix_icmp_checksum(f);
       }},
  };
  for (const Wound& wound : wounds) {
    Frame frame = wound.make();
    ASSERT_TRUE(parse_neighbour(frame)) << wound.name;
    wound.inflict(frame);
    const ExactBlock block(frame);
    EXPECT_FALSE(parse_neighbour(block.bytes())) << wound.name;
  }
}

TEST(Neighbour, TruncationsAndNoiseStayInBounds) {
  for (const Frame& frame : {arp_request(), arp_reply_on_vlan(), solicitation(), advertisement()}) {
    for (std::size_t length = 0; length < frame.size(); ++length) {
      const ExactBlock block(std::span<const std::byte>(frame).first(length));
      EXPECT_FALSE(parse_neighbour(block.bytes())) << length;
    }
    Frame flipped = frame;
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
      flipped[bit / 8] ^= std::byte{1} << bit % 8;
      const ExactBlock block(flipped);
      (void)parse_neighbour(block.bytes());
      flipped[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
  Prng prng(51);
  for (int i = 0; i < 20'000; ++i) {
    // Noise behind a sound beginning, with a sound checksum: the options are what is hostile.
    Frame frame = solicitation();
    const std::size_t options = prng.below(64);
    frame.resize(kIcmp + 24);
    const Frame noise = test::random_bytes(options, prng);
    frame.insert(frame.end(), noise.begin(), noise.end());
    if (options % 2 != 0) continue;
    store_be<std::uint16_t>(&frame[kIp + 4], static_cast<std::uint16_t>(24 + options));
    fix_icmp_checksum(frame);
    const ExactBlock block(frame);
    (void)parse_neighbour(block.bytes());
  }
}

}  // namespace
}  // namespace rocemu::wire
