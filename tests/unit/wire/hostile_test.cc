// The parser is total: whatever the bytes, it gives a reason or a sound packet and stays inside its
// exact-size block. And each reason is given for what it names.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dataplane/wire/packet.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

using test::ExactBlock;
using test::Frame;
using test::PathForm;

constexpr std::size_t kIp = kEthernetBytes;
constexpr std::size_t kUdp4 = kIp + kIpv4Bytes;
constexpr std::size_t kBth4 = kUdp4 + kUdpBytes;
constexpr std::size_t kBth6 = kIp + kIpv6Bytes + kUdpBytes;

// Parses a private exact-size copy; what comes out is sound or refused.
DropReason parse_hostile(std::span<const std::byte> bytes) {
  const ExactBlock block(bytes);
  (void)classify_frame(block.bytes());
  Packet packet;
  const DropReason reason = parse_packet(block.bytes(), packet);
  if (reason == DropReason::none) {
    test::expect_sound(block.bytes(), packet);
    (void)check_icrc(block.bytes(), packet);
  }
  return reason;
}

Frame good_frame(RoceKind kind, Opcode opcode, std::size_t payload_bytes) {
  Prng prng(41);
  const Packet packet = test::random_packet({opcode, kind, false}, payload_bytes, prng);
  return test::encode(packet, test::random_bytes(payload_bytes, prng), PathForm::kHeaders);
}

void fix_ipv4_checksum(Frame& frame) {
  std::uint32_t sum = 0;
  store_be<std::uint16_t>(&frame[kIp + 10], 0);
  for (std::size_t i = 0; i < kIpv4Bytes; i += 2) sum += load_be<std::uint16_t>(&frame[kIp + i]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  store_be<std::uint16_t>(&frame[kIp + 10], static_cast<std::uint16_t>(~sum));
}

TEST(HostileFrame, EveryTruncationIsRefused) {
  Prng prng(42);
  for (const test::Shape& shape : test::all_shapes()) {
    const std::size_t n = opcode_info(shape.opcode).carries_payload ? 9 : 0;
    const Packet packet = test::random_packet(shape, n, prng);
    const Frame frame = test::encode(packet, test::random_bytes(n, prng), PathForm::kHeaders);
    for (std::size_t length = 0; length < frame.size(); ++length) {
      ASSERT_NE(parse_hostile(std::span(frame).first(length)), DropReason::none)
          << packet.info().name << " cut to " << length;
    }
  }
}

TEST(HostileFrame, EveryFlippedBitIsRefusedOrSound) {
  Prng prng(43);
  for (const test::Shape& shape : test::all_shapes()) {
    const std::size_t n = opcode_info(shape.opcode).carries_payload ? 5 : 0;
    const Packet packet = test::random_packet(shape, n, prng);
    Frame frame = test::encode(packet, test::random_bytes(n, prng), PathForm::kHeaders);
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
      frame[bit / 8] ^= std::byte{1} << bit % 8;
      (void)parse_hostile(frame);
      frame[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
}

TEST(HostileFrame, RandomBytesBehindPlausibleBeginningsAreRefusedOrSound) {
  Prng prng(44);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto shapes = test::all_shapes();
    const test::Shape shape = shapes[prng.below(shapes.size())];
    const std::size_t n = opcode_info(shape.opcode).carries_payload ? prng.below(40) : 0;
    Frame frame = test::encode(test::random_packet(shape, n, prng), test::random_bytes(n, prng),
                               PathForm::kHeaders);
    const std::size_t kept = prng.below(frame.size() + 1);
    for (std::size_t at = kept; at < frame.size(); ++at) {
      frame[at] = static_cast<std::byte>(prng.next());
    }
    frame.resize(prng.below(frame.size() + 20), std::byte{0});
    accepted += parse_hostile(frame) == DropReason::none;
  }
  EXPECT_GT(accepted, 1000) << "too few reach the deeper layers";
}

TEST(HostileFrame, PureNoiseIsRefusedOrSound) {
  Prng prng(45);
  for (int i = 0; i < 50'000; ++i) (void)parse_hostile(test::random_bytes(prng.below(120), prng));
}

struct Wound {
  const char* name;
  RoceKind kind;
  Opcode opcode;
  std::size_t payload_bytes;
  std::function<void(Frame&)> inflict;
  DropReason reason;
};

std::vector<Wound> ip_wounds() {
  using enum RoceKind;
  const auto send = Opcode::kRcSendOnly;
  return {
      {"other EtherType", kV2Ipv4, send, 4,
       [](Frame& f) { store_be<std::uint16_t>(&f[12], 0x88cc); }, DropReason::not_roce},
      {"IPv4 options", kV2Ipv4, send, 4,
       [](Frame& f) {
         f[kIp] = std::byte{0x46};
         fix_ipv4_checksum(f);
       },
       DropReason::bad_ip_header},
      {"IPv4 that is version 6", kV2Ipv4, send, 4,
       [](Frame& f) {
         f[kIp] = std::byte{0x65};
         fix_ipv4_checksum(f);
       },
       DropReason::bad_ip_header},
      {"IPv4 checksum", kV2Ipv4, send, 4, [](Frame& f) { f[kIp + 10] ^= std::byte{1}; },
       DropReason::bad_ip_header},
      {"more fragments", kV2Ipv4, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 6], 0x2000);
         fix_ipv4_checksum(f);
       },
       DropReason::bad_ip_header},
      {"later fragment", kV2Ipv4, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 6], 1);
         fix_ipv4_checksum(f);
       },
       DropReason::bad_ip_header},
      {"TCP", kV2Ipv4, send, 4,
       [](Frame& f) {
         f[kIp + 9] = std::byte{6};
         fix_ipv4_checksum(f);
       },
       DropReason::not_roce},
      {"IPv4 longer than the frame", kV2Ipv4, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 2], static_cast<std::uint16_t>(f.size() - kIp + 1));
         fix_ipv4_checksum(f);
       },
       DropReason::length_mismatch},
      {"IPv4 shorter than its header", kV2Ipv4, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 2], 19);
         fix_ipv4_checksum(f);
       },
       DropReason::length_mismatch},
      {"IPv6 that is version 4", kV2Ipv6, send, 4, [](Frame& f) { f[kIp] = std::byte{0x40}; },
       DropReason::bad_ip_header},
      {"IPv6 longer than the frame", kV2Ipv6, send, 4,
       [](Frame& f) { store_be<std::uint16_t>(&f[kIp + 4], 0xffff); }, DropReason::length_mismatch},
      {"IPv6 extension header", kV2Ipv6, send, 4, [](Frame& f) { f[kIp + 6] = std::byte{0}; },
       DropReason::not_roce},
      {"GRH with another next header", kV1, send, 4, [](Frame& f) { f[kIp + 6] = std::byte{17}; },
       DropReason::not_roce},
      {"GRH of version 4", kV1, send, 4, [](Frame& f) { f[kIp] = std::byte{0x40}; },
       DropReason::bad_ip_header},
  };
}

std::vector<Wound> transport_wounds() {
  using enum RoceKind;
  const auto send = Opcode::kRcSendOnly;
  return {
      {"another UDP port", kV2Ipv4, send, 4,
       [](Frame& f) { store_be<std::uint16_t>(&f[kUdp4 + 2], 4790); }, DropReason::not_roce},
      {"UDP length below IP's", kV2Ipv4, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kUdp4 + 4], static_cast<std::uint16_t>(f.size() - kUdp4 - 4));
       },
       DropReason::length_mismatch},
      {"no room for a UDP header", kV2Ipv6, send, 4,
       [](Frame& f) { store_be<std::uint16_t>(&f[kIp + 4], 7); }, DropReason::truncated_header},
      {"no room for BTH and ICRC", kV2Ipv6, send, 4,
       [](Frame& f) {
         store_be<std::uint16_t>(&f[kIp + 4], 8 + 15);
         store_be<std::uint16_t>(&f[kIp + kIpv6Bytes + 4], 8 + 15);
       },
       DropReason::truncated_header},
      {"no room for the extended headers", kV2Ipv6, send, 4,
       [](Frame& f) { f[kBth6] = std::byte{0x0c}; }, DropReason::truncated_header},
      {"TVer 1", kV2Ipv4, send, 4, [](Frame& f) { f[kBth4 + 1] |= std::byte{1}; },
       DropReason::bad_transport_version},
      {"reserved opcode", kV2Ipv4, send, 4, [](Frame& f) { f[kBth4] = std::byte{0x15}; },
       DropReason::unknown_opcode},
      {"XRC opcode", kV2Ipv4, send, 4, [](Frame& f) { f[kBth4] = std::byte{0xa4}; },
       DropReason::unknown_opcode},
      {"payload behind an Acknowledge", kV2Ipv4, send, 8,
       [](Frame& f) { f[kBth4] = std::byte{0x11}; }, DropReason::bad_payload_length},
      {"more pad than payload", kV2Ipv4, send, 0, [](Frame& f) { f[kBth4 + 1] |= std::byte{0x30}; },
       DropReason::bad_payload_length},
  };
}

TEST(HostileFrame, EachWoundHasItsReason) {
  std::vector<Wound> wounds = ip_wounds();
  for (Wound& wound : transport_wounds()) wounds.push_back(std::move(wound));
  for (const Wound& wound : wounds) {
    Frame frame = good_frame(wound.kind, wound.opcode, wound.payload_bytes);
    ASSERT_EQ(parse_hostile(frame), DropReason::none) << wound.name;
    wound.inflict(frame);
    EXPECT_EQ(parse_hostile(frame), wound.reason) << wound.name;
  }
}

TEST(HostileFrame, ALengthThatIsNoMultipleOfFourIsRefused) {
  Frame frame = good_frame(RoceKind::kV1, Opcode::kRcSendOnly, 8);
  store_be<std::uint16_t>(&frame[kIp + 4],
                          static_cast<std::uint16_t>(load_be<std::uint16_t>(&frame[kIp + 4]) - 1));
  EXPECT_EQ(parse_hostile(frame), DropReason::bad_payload_length);
}

TEST(ClassifyFrame, WhatIsNotRoceIsSomebodyElses) {
  EXPECT_EQ(classify_frame({}), FrameClass::kOther);
  EXPECT_EQ(classify_frame(Frame(13)), FrameClass::kOther);
  EXPECT_EQ(classify_frame(Frame(64)), FrameClass::kOther);
  Frame frame = good_frame(RoceKind::kV2Ipv4, Opcode::kRcSendOnly, 4);
  EXPECT_EQ(classify_frame(frame), FrameClass::kRoce);
  // Of a later fragment nobody knows the port.
  store_be<std::uint16_t>(&frame[kIp + 6], 1);
  EXPECT_EQ(classify_frame(frame), FrameClass::kOther);
  store_be<std::uint16_t>(&frame[kIp + 6], 0x2000);
  EXPECT_EQ(classify_frame(frame), FrameClass::kRoce) << "a first fragment shows its port";
  store_be<std::uint16_t>(&frame[kUdp4 + 2], 53);
  EXPECT_EQ(classify_frame(frame), FrameClass::kOther);
}

TEST(ClassifyFrame, WhatParsesIsRoce) {
  Prng prng(46);
  for (const test::Shape& shape : test::all_shapes()) {
    const Frame frame = test::encode(test::random_packet(shape, 0, prng), {}, PathForm::kHeaders);
    EXPECT_EQ(classify_frame(frame), FrameClass::kRoce);
    for (std::size_t length = 0; length < frame.size(); ++length) {
      const ExactBlock block(std::span<const std::byte>(frame).first(length));
      (void)classify_frame(block.bytes());
    }
  }
}

}  // namespace
}  // namespace rocemu::wire
