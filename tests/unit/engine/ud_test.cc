// Unreliable datagrams: address handles, Q_Keys, the network header in front of the payload,
// multicast (IBTA vol. 1, 9.8.3, 10.2.5, 10.5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "dataplane/transport/transport_limits.h"
#include "dataplane/wire/inet_checksum.h"
#include "dataplane/wire/packet.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::QpType;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint32_t kQkey = 0x1111'1111;
constexpr std::uint32_t kGroupQpn = 0xff'ffff;
constexpr std::uint64_t kTarget = 0x8'0000;

const wire::Gid kGroup{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
const wire::MacAddress kGroupMac{0x01, 0x00, 0x5e, 1, 2, 3};

struct Ud : testing::Test {
  Ud() : pair(small_mtu()) {}
  static HostOptions small_mtu() {
    HostOptions out;
    out.engine.max_mtu_bytes = 2048;
    return out;
  }
  void SetUp() override {
    qa = make_qp(pair.a);
    qb = make_qp(pair.b);
    ah = make_ah(pair.a, path_to_b());
    for (std::size_t i = 0; i < pair.a.buffer.size(); ++i) {
      pair.a.buffer[i] = static_cast<std::byte>(i * 5 + i / 253);
    }
  }

  QpHandle make_qp(Host& host, std::uint32_t qkey = kQkey) {
    using namespace transport;
    QpHandle qp = host.make_qp(127, false, QpType::kUd);
    QpAttr attr;
    attr.state = QpState::kInit;
    attr.qkey = qkey;
    const auto to = [&](std::uint32_t mask) {
      EXPECT_TRUE(host.engine->modify_qp(pair.now, qp.number, attr, kQpState | mask).ok());
    };
    to(kQpPkeyIndex | kQpPort | kQpQkey);
    attr.state = QpState::kRtr;
    to(0);
    attr.state = QpState::kRts;
    attr.sq_psn = Psn(7);
    to(kQpSqPsn);
    return qp;
  }
  wire::PathHeaders path_to_b() const {
    wire::PathHeaders path;
    path.source = pair.a.gid;
    path.destination = pair.b.gid;
    path.source_mac = pair.a.mac;
    path.destination_mac = pair.b.mac;
    path.udp_source_port = 0xc123;
    path.traffic_class = 0x28;
    path.hop_limit = 3;
    return path;
  }
  wire::PathHeaders path_to_group() const {
    wire::PathHeaders path = path_to_b();
    path.destination = kGroup;
    path.destination_mac = kGroupMac;
    return path;
  }
  static std::uint32_t make_ah(Host& host, const wire::PathHeaders& path, PdId pd = PdId{1},
                               ContextId context = ContextId{1}) {
    return host.engine->create_address_handle({context, pd, path}).value();
  }
  SendOptions to(std::uint32_t qpn, std::uint32_t qkey, std::uint32_t handle) const {
    SendOptions options;
    options.to = DatagramTo{qpn, qkey, handle};
    return options;
  }
  void send(std::uint32_t length, const SendOptions& options, WrOpcode opcode = WrOpcode::kSend) {
    pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(0, length)}, options);
  }
  void send(std::uint32_t length) { send(length, to(qb.number.value, kQkey, ah)); }
  void receive(QpHandle& qp, Host& host, std::uint64_t wr_id, std::uint32_t length = 4096) {
    host.post_recv(qp, std::array{host.sge(kTarget, length)}, wr_id);
  }
  std::span<const std::byte> arrived(std::size_t offset, std::size_t length) const {
    return std::span(pair.b.buffer).subspan(kTarget + offset, length);
  }
  bool is_payload(std::span<const std::byte> bytes) const {
    return std::ranges::equal(bytes, std::span(pair.a.buffer).first(bytes.size()));
  }
  QpState state_of(Host& host, const QpHandle& qp) {
    return host.engine->query_qp(qp.number)->state;
  }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
  std::uint32_t ah = 0;
};

TEST_F(Ud, DatagramsOfEveryLengthArriveWithAllTheirFields) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kSendWithImm}) {
    for (const std::uint32_t length : {0u, 1u, 4u, 1023u, 2048u}) {
      SCOPED_TRACE(length);
      std::ranges::fill(pair.b.buffer, std::byte{0xee});
      receive(qb, pair.b, 31);
      SendOptions options = to(qb.number.value, kQkey, ah);
      options.wr_id = 30;
      options.immediate = 0xdada'0002;
      send(length, options, opcode);
      ASSERT_TRUE(pair.run());
      const auto sent = pair.a.poll_all();
      ASSERT_EQ(sent.size(), 1u);
      EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
      EXPECT_EQ(sent[0].wr_id, 30u);
      const auto received = pair.b.poll_all();
      ASSERT_EQ(received.size(), 1u);
      const Wc& wc = received[0];
      EXPECT_EQ(wc.status, WcStatus::kSuccess);
      EXPECT_EQ(wc.wr_id, 31u);
      EXPECT_EQ(wc.opcode, WcOpcode::kRecv);
      EXPECT_EQ(wc.byte_length, 40 + length);
      EXPECT_EQ(wc.source_qp, qa.number.value);
      EXPECT_EQ(wc.qp, qb.number.value);
      EXPECT_EQ(wc.service_level, 0xa);  // RoCE v2 over IPv4
      EXPECT_EQ(wc.pkey_index, 0);
      const bool has_imm = opcode == WrOpcode::kSendWithImm;
      EXPECT_EQ(wc.flags, transport::kWcGrh | (has_imm ? transport::kWcWithImm : 0u));
      if (has_imm) {
        EXPECT_EQ(wc.immediate, 0xdada'0002u);
      }
      EXPECT_TRUE(is_payload(arrived(40, length)));
      EXPECT_EQ(arrived(40 + length, 1)[0], std::byte{0xee});
    }
  }
  EXPECT_EQ(pair.b_frames, 0u);
}

TEST_F(Ud, FrameIsWhatTheHandleSays) {
  send(13);
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 1u);
  const wire::Packet packet = parse(frames[0]);
  EXPECT_EQ(packet.bth.opcode, wire::Opcode::kUdSendOnly);
  EXPECT_EQ(packet.bth.destination_qp, qb.number);
  EXPECT_EQ(packet.bth.psn, Psn(7));
  EXPECT_FALSE(packet.bth.ack_req);
  EXPECT_EQ(packet.deth.qkey, kQkey);
  EXPECT_EQ(packet.deth.source_qp, qa.number);
  EXPECT_EQ(packet.path.udp_source_port, 0xc123);
  EXPECT_EQ(packet.path.traffic_class, 0x28);
  EXPECT_EQ(packet.path.hop_limit, 3);
  EXPECT_EQ(packet.path.destination, pair.b.gid);
}

TEST_F(Ud, NetworkHeaderOfIpv4StandsInTheLastTwentyBytes) {
  std::ranges::fill(pair.b.buffer, std::byte{0xee});
  receive(qb, pair.b, 1);
  send(100);
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(pair.b.poll_all().size(), 1u);
  EXPECT_TRUE(std::ranges::all_of(arrived(0, 20), [](std::byte b) { return b == std::byte{0}; }));
  const auto ip = arrived(20, 20);
  EXPECT_EQ(ip[0], std::byte{0x45});
  EXPECT_EQ(wire::fold_checksum(wire::sum_words(ip.data(), ip.size())), 0);
  EXPECT_EQ(load_be<std::uint16_t>(ip.data() + 2), 20 + 8 + 12 + 8 + 100 + 4);
  EXPECT_EQ(ip[8], std::byte{3});
  EXPECT_EQ(ip[9], std::byte{17});
  EXPECT_EQ(std::memcmp(ip.data() + 12, &pair.a.gid[12], 4), 0);
  EXPECT_EQ(std::memcmp(ip.data() + 16, &pair.b.gid[12], 4), 0);
}

TEST_F(Ud, NetworkHeaderOfIpv6AndOfRoceV1IsTheOneOfTheFrame) {
  wire::Gid a6{0xfd};
  a6[15] = 1;
  wire::Gid b6{0xfd};
  b6[15] = 2;
  ASSERT_TRUE(pair.b.engine->set_gids({&b6, 1}).ok());
  for (const wire::RoceKind kind : {wire::RoceKind::kV2Ipv6, wire::RoceKind::kV1}) {
    wire::PathHeaders path = path_to_b();
    path.kind = kind;
    path.source = a6;
    path.destination = b6;
    path.flow_label = 0x12345;
    const std::uint32_t handle = make_ah(pair.a, path);
    receive(qb, pair.b, 1);
    send(64, to(qb.number.value, kQkey, handle));
    const auto frames = pair.collect(pair.a);
    ASSERT_EQ(frames.size(), 1u);
    pair.deliver(pair.b, std::array{frames[0]});
    const auto received = pair.b.poll_all();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].service_level, kind == wire::RoceKind::kV1 ? 0x8 : 0x9);
    EXPECT_TRUE(std::ranges::equal(arrived(0, 40), std::span(frames[0]).subspan(14, 40)));
    EXPECT_TRUE(is_payload(arrived(40, 64)));
  }
}

TEST_F(Ud, HeaderAndPayloadAreScatteredOverAnySges) {
  for (const std::uint32_t first : {0u, 1u, 19u, 20u, 21u, 39u, 40u, 41u}) {
    SCOPED_TRACE(first);
    std::ranges::fill(pair.b.buffer, std::byte{0xee});
    std::vector<transport::Sge> sges{pair.b.sge(kTarget, first)};
    std::uint64_t at = kTarget + first;
    for (const std::uint32_t piece : {1u, 7u, 30u, 3u, 500u}) {
      sges.push_back(pair.b.sge(at, piece));
      at += piece;
    }
    pair.b.post_recv(qb, sges, 1);
    send(300);
    ASSERT_TRUE(pair.run());
    ASSERT_EQ(pair.b.poll_all().size(), 1u);
    EXPECT_EQ(arrived(19, 1)[0], std::byte{0});
    EXPECT_EQ(arrived(20, 1)[0], std::byte{0x45});
    EXPECT_TRUE(is_payload(arrived(40, 300)));
    EXPECT_EQ(arrived(340, 1)[0], std::byte{0xee});
  }
}

TEST_F(Ud, QkeyOfAnotherIsDropped) {
  receive(qb, pair.b, 1);
  send(8, to(qb.number.value, kQkey + 1, ah));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::bad_qkey), 1u);
  EXPECT_FALSE(pair.b.poll());
  EXPECT_EQ(pair.a.poll_all()[0].status, WcStatus::kSuccess);
}

TEST_F(Ud, QkeyWithTheHighBitIsTheQueuePairsOwn) {
  receive(qb, pair.b, 1);
  send(8, to(qb.number.value, 0x8001'0000, ah));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
  EXPECT_EQ(pair.b.counters.get(DropReason::bad_qkey), 0u);
}

TEST_F(Ud, DatagramLongerThanTheMtuIsNotSentAndNoError) {
  receive(qb, pair.b, 1);
  receive(qb, pair.b, 2);
  SendOptions options = to(qb.number.value, kQkey, ah);
  for (const std::uint32_t length : {16u, 2049u, 17u}) {
    options.wr_id = length;
    send(length, options);
  }
  ASSERT_TRUE(pair.run());
  const auto sent = pair.a.poll_all();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].wr_id, 16u);
  EXPECT_EQ(sent[1].wr_id, 2049u);
  EXPECT_EQ(sent[2].wr_id, 17u);
  for (const Wc& wc : sent) EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_EQ(pair.a_frames, 2u);
  EXPECT_EQ(pair.b.poll_all().size(), 2u);
}

TEST_F(Ud, DatagramWithoutAReceiveIsDropped) {
  send(8);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::no_receive_buffer), 1u);
  EXPECT_EQ(pair.b.counters.get(Counter::out_of_buffer), 1u);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kRts);
}

TEST_F(Ud, ReceiveWithoutRoomForTheHeaderIsALengthError) {
  receive(qb, pair.b, 1, 48);
  receive(qb, pair.b, 2, 47);
  send(8);
  send(8);
  ASSERT_TRUE(pair.run(pair.now + milliseconds(1)));
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, WcStatus::kSuccess);
  EXPECT_EQ(received[1].status, WcStatus::kLocLenErr);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kErr);
}

TEST_F(Ud, ReceiveIntoMemoryThatIsNotItsIsAProtectionError) {
  // The header fits into memory that is there; the payload does not.
  transport::Sge foreign = pair.b.sge(kTarget + 40, 64);
  foreign.lkey ^= 0x100;
  pair.b.post_recv(qb, std::array{pair.b.sge(kTarget, 40), foreign}, 1);
  send(8);
  ASSERT_TRUE(pair.run(pair.now + milliseconds(1)));
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kErr);
}

TEST_F(Ud, HandlesThatAreNotTheQueuePairsStopTheSendQueue) {
  const std::uint32_t other_pd = make_ah(pair.a, path_to_b(), PdId{2});
  const std::uint32_t other_context = make_ah(pair.a, path_to_b(), PdId{1}, ContextId{2});
  const std::uint32_t gone = make_ah(pair.a, path_to_b());
  ASSERT_TRUE(pair.a.engine->destroy_address_handle(gone).ok());
  EXPECT_FALSE(pair.a.engine->destroy_address_handle(gone).ok());
  const std::uint32_t again = make_ah(pair.a, path_to_b());
  EXPECT_NE(again, gone);
  for (const std::uint32_t number : {0u, other_pd, other_context, gone, ~0u, ah ^ 0x8000}) {
    SCOPED_TRACE(number);
    send(8, to(qb.number.value, kQkey, number));
    ASSERT_TRUE(pair.run());
    const auto sent = pair.a.poll_all();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, WcStatus::kLocQpOpErr);
    EXPECT_EQ(state_of(pair.a, qa), QpState::kSqe);
    transport::QpAttr attr;
    attr.state = QpState::kRts;
    ASSERT_TRUE(pair.a.engine->modify_qp(pair.now, qa.number, attr, transport::kQpState).ok());
  }
  EXPECT_EQ(pair.a_frames, 0u);
  receive(qb, pair.b, 1);
  send(8, to(qb.number.value, kQkey, again));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
}

TEST_F(Ud, OnlySendsAreOffered) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm,
                                WrOpcode::kRdmaRead, WrOpcode::kAtomicFetchAndAdd}) {
    send(8, to(qb.number.value, kQkey, ah), opcode);
    ASSERT_TRUE(pair.run());
    const auto sent = pair.a.poll_all();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, WcStatus::kLocQpOpErr);
    transport::QpAttr attr;
    attr.state = QpState::kRts;
    ASSERT_TRUE(pair.a.engine->modify_qp(pair.now, qa.number, attr, transport::kQpState).ok());
  }
}

TEST_F(Ud, PacketsOfOtherServicesAreDropped) {
  receive(qb, pair.b, 1);
  wire::Packet packet;
  for (const wire::Opcode opcode : {wire::Opcode::kRcSendOnly, wire::Opcode::kUcSendOnly}) {
    packet.bth.opcode = opcode;
    pair.deliver(pair.b, std::array{make_frame(pair.a, pair.b, qb.number, packet)});
  }
  EXPECT_EQ(pair.b.counters.get(DropReason::wrong_service), 2u);
}

// Group members.

struct Multicast : Ud {
  void send_to_group() { send(32, to(kGroupQpn, kQkey, group_ah)); }
  void SetUp() override {
    Ud::SetUp();
    group_ah = make_ah(pair.a, path_to_group());
  }
  std::uint32_t group_ah = 0;
};

TEST_F(Multicast, EveryAttachedQueuePairGetsItsCopyTheSendersHostToo) {
  QpHandle qb2 = make_qp(pair.b);
  QpHandle idle = make_qp(pair.b);
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb.number, kGroup).ok());
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb2.number, kGroup).ok());
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb2.number, kGroup).ok());  // is there already
  ASSERT_TRUE(pair.a.engine->attach_multicast(qa.number, kGroup).ok());
  receive(qb, pair.b, 1);
  pair.b.post_recv(qb2, std::array{pair.b.sge(0x1000, 4096)}, 2);
  pair.b.post_recv(idle, std::array{pair.b.sge(0x3000, 4096)}, 3);
  receive(qa, pair.a, 4);
  send_to_group();
  ASSERT_TRUE(pair.run());
  auto at_b = pair.b.poll_all();
  ASSERT_EQ(at_b.size(), 2u);
  EXPECT_EQ(at_b[0].wr_id, 1u);
  EXPECT_EQ(at_b[1].wr_id, 2u);
  EXPECT_TRUE(is_payload(arrived(40, 32)));
  EXPECT_TRUE(is_payload(std::span(pair.b.buffer).subspan(0x1000 + 40, 32)));
  const auto at_a = pair.a.poll_all();
  ASSERT_EQ(at_a.size(), 2u);
  EXPECT_EQ(at_a[0].opcode, WcOpcode::kSend);
  EXPECT_EQ(at_a[1].opcode, WcOpcode::kRecv);
  EXPECT_EQ(at_a[1].source_qp, qa.number.value);
  EXPECT_TRUE(is_payload(std::span(pair.a.buffer).subspan(kTarget + 40, 32)));
  EXPECT_EQ(pair.a.counters.get(Counter::multicast_xmit_packets), 1u);
  EXPECT_EQ(pair.a.counters.get(Counter::unicast_xmit_packets), 0u);
  EXPECT_EQ(pair.a.counters.get(Counter::multicast_rcv_packets), 1u);
  EXPECT_EQ(pair.b.counters.get(Counter::multicast_rcv_packets), 1u);
  EXPECT_EQ(pair.b.counters.get(Counter::unicast_rcv_packets), 0u);
}

TEST_F(Multicast, ManyToTheOwnGroupInOneBatchAllArrive) {
  ASSERT_TRUE(pair.a.engine->attach_multicast(qa.number, kGroup).ok());
  for (std::uint64_t i = 0; i < 100; ++i) {
    receive(qa, pair.a, i);
    send_to_group();
  }
  ASSERT_TRUE(pair.run());
  auto done = pair.a.poll_all();
  EXPECT_EQ(std::ranges::count(done, WcOpcode::kRecv, &Wc::opcode), 100);
  EXPECT_EQ(std::ranges::count(done, WcOpcode::kSend, &Wc::opcode), 100);
}

TEST_F(Multicast, WhoIsNotAttachedAnyMoreGetsNothing) {
  receive(qb, pair.b, 1);
  send_to_group();
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::no_group_member), 1u);
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb.number, kGroup).ok());
  ASSERT_TRUE(pair.b.engine->detach_multicast(qb.number, kGroup).ok());
  const auto again = pair.b.engine->detach_multicast(qb.number, kGroup);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, EINVAL);
  send_to_group();
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::no_group_member), 2u);
  // A QP that is destroyed leaves its groups.
  QpHandle other = make_qp(pair.b);
  ASSERT_TRUE(pair.b.engine->attach_multicast(other.number, kGroup).ok());
  ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, other.number).ok());
  send_to_group();
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::no_group_member), 3u);
  EXPECT_FALSE(pair.b.poll());
}

TEST_F(Multicast, FrameIsDroppedOnceForTheReasonOfTheLastWhenNobodyTakesIt) {
  QpHandle other = make_qp(pair.b, kQkey + 5);
  receive(qb, pair.b, 1);
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb.number, kGroup).ok());
  ASSERT_TRUE(pair.b.engine->attach_multicast(other.number, kGroup).ok());
  send_to_group();
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
  EXPECT_EQ(pair.b.counters.get(Counter::port_rcv_errors), 0u);
  send_to_group();  // no receive at one, the wrong Q_Key at the other
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(Counter::port_rcv_errors), 1u);
  EXPECT_EQ(pair.b.counters.get(DropReason::bad_qkey), 1u);
}

TEST_F(Multicast, FrameToAGroupNamesNoQueuePair) {
  ASSERT_TRUE(pair.b.engine->attach_multicast(qb.number, kGroup).ok());
  receive(qb, pair.b, 1);
  send(8, to(qb.number.value, kQkey, group_ah));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.counters.get(DropReason::unknown_qp), 1u);
  EXPECT_FALSE(pair.b.poll());
}

TEST_F(Multicast, OnlyUdAndOnlyGroupsAndOnlySoMany) {
  const QpHandle rc = pair.b.make_qp();
  EXPECT_EQ(pair.b.engine->attach_multicast(rc.number, kGroup).error().code, EINVAL);
  EXPECT_EQ(pair.b.engine->attach_multicast(qb.number, pair.a.gid).error().code, EINVAL);
  for (std::uint32_t i = 0; i < transport::kMaxMulticastAttachments; ++i) {
    const QpHandle qp = pair.b.make_qp(1, false, QpType::kUd);
    ASSERT_TRUE(pair.b.engine->attach_multicast(qp.number, kGroup).ok());
  }
  EXPECT_EQ(pair.b.engine->attach_multicast(qb.number, kGroup).error().code, ENOMEM);
  wire::Gid group = kGroup;
  for (std::uint32_t i = 1; i < transport::kMaxMulticastGroups; ++i) {
    group[14] = static_cast<std::uint8_t>(0x40 + (i >> 8));
    group[15] = static_cast<std::uint8_t>(i);
    ASSERT_TRUE(pair.b.engine->attach_multicast(qb.number, group).ok());
  }
  group[13] = 9;
  EXPECT_EQ(pair.b.engine->attach_multicast(qb.number, group).error().code, ENOMEM);
}

TEST_F(Ud, HandlesAreAsManyAsTheDeviceHas) {
  HostOptions few;
  few.engine.limits.max_address_handles = 3;
  Host host(3, few);
  std::vector<std::uint32_t> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(make_ah(host, path_to_b()));
  const AddressHandleInit one_more{ContextId{1}, PdId{1}, path_to_b()};
  EXPECT_EQ(host.engine->create_address_handle(one_more).error().code, ENOMEM);
  ASSERT_TRUE(host.engine->destroy_address_handle(handles[1]).ok());
  EXPECT_TRUE(host.engine->create_address_handle(one_more).ok());
}

}  // namespace
}  // namespace rocemu::engine::test
