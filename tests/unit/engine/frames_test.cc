// Single frames made by hand: each header check has its drop reason, each response that does not
// fit has its consequence, each status of a work completion its cause.
#include <gtest/gtest.h>

#include <cstring>

#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::WcStatus;
using transport::WrOpcode;
using wire::Opcode;

struct Frames : testing::Test {
  Frames() : qa(pair.a.make_qp()), qb(pair.b.make_qp()) { pair.connect(qa, qb, {.mtu = 256}); }

  // Delivers one frame and says why it was dropped; the counters must agree with each other.
  DropReason drop_of(Host& to, const Frame& frame) {
    CounterBlock before = to.counters;
    pair.deliver(to, {&frame, 1});
    DropReason reason = DropReason::none;
    std::uint64_t drops = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(DropReason::kCount); ++i) {
      const auto r = static_cast<DropReason>(i);
      const std::uint64_t n = to.counters.get(r) - before.get(r);
      drops += n;
      if (n != 0) reason = r;
    }
    EXPECT_EQ(drops,
              to.counters.get(Counter::port_rcv_errors) - before.get(Counter::port_rcv_errors));
    EXPECT_EQ(
        drops + to.counters.get(Counter::port_rcv_packets) - before.get(Counter::port_rcv_packets),
        1u);
    return reason;
  }

  wire::Packet write_only() const {
    wire::Packet packet;
    packet.bth.opcode = Opcode::kRcWriteOnly;
    packet.bth.psn = Psn(100);
    packet.bth.ack_req = true;
    packet.reth = {kBufferVa, pair.b.keys.rkey, 4};
    return packet;
  }
  Frame to_b(const wire::Packet& packet) {
    return make_frame(pair.a, pair.b, qb.number, packet, payload);
  }

  wire::Packet response(Opcode opcode, std::uint32_t psn, std::uint8_t syndrome = 0x1f) const {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = Psn(psn);
    packet.aeth = {syndrome, 1};
    return packet;
  }
  Frame to_a(const wire::Packet& packet, std::span<const std::byte> data = {}) {
    return make_frame(pair.b, pair.a, qa.number, packet, data);
  }
  void post(WrOpcode opcode, std::uint32_t length) {
    SendOptions options;
    options.rkey = pair.b.keys.rkey;
    pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(0, length)}, options);
    pair.collect(pair.a);
  }
  void expect_failed(WcStatus status) {
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, status);
    EXPECT_EQ(pair.a.engine->query_qp(qa.number)->state, QpState::kErr);
  }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
  std::array<std::byte, 4> payload{};
};

TEST_F(Frames, GoodOneIsAccepted) {
  EXPECT_EQ(drop_of(pair.b, to_b(write_only())), DropReason::none);
}

TEST_F(Frames, WrongIcrc) {
  Frame frame = to_b(write_only());
  frame.back() ^= std::byte{0x80};
  EXPECT_EQ(drop_of(pair.b, frame), DropReason::bad_icrc);
  EXPECT_EQ(pair.b.counters.get(Counter::rx_icrc_encapsulated), 1u);
}

TEST_F(Frames, CorruptPayloadHasNoEffectAtAll) {
  payload.fill(std::byte{0x55});
  Frame frame = to_b(write_only());
  frame[frame.size() - 6] ^= std::byte{1};
  EXPECT_EQ(drop_of(pair.b, frame), DropReason::bad_icrc);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pair.b.buffer[static_cast<std::size_t>(i)], std::byte{0});
}

TEST_F(Frames, UnknownQp) {
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, QpNum{0x77777}, write_only(), payload)),
            DropReason::unknown_qp);
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, QpNum{1}, write_only(), payload)),
            DropReason::unknown_qp);
}

TEST_F(Frames, ForeignDestinationAddress) {
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.a, qb.number, write_only(), payload)),
            DropReason::wrong_destination);
}

TEST_F(Frames, SourceThatIsNotThePeer) {
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.b, pair.b, qb.number, write_only(), payload)),
            DropReason::wrong_source);
}

TEST_F(Frames, RoceV1ToAQpOfVersionTwo) {
  wire::Packet packet = write_only();
  packet.path.kind = wire::RoceKind::kV1;
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::wrong_roce_version);
}

TEST_F(Frames, PkeyOfAnotherPartition) {
  wire::Packet packet = write_only();
  packet.bth.pkey = 0x8001;
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::bad_pkey);
  packet.bth.pkey = 0x7fff;  // a limited member of the default partition
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
}

TEST_F(Frames, OtherTransportServices) {
  wire::Packet packet = write_only();
  for (const Opcode opcode : {Opcode::kUcWriteOnly, Opcode::kUcSendOnly, Opcode::kUdSendOnly}) {
    packet.bth.opcode = opcode;
    EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::wrong_service);
  }
  packet.bth.opcode = Opcode::kRcSack;
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, qb.number, packet)),
            DropReason::wrong_service);
}

TEST_F(Frames, StatesThatTakeNoPackets) {
  const QpHandle fresh = pair.b.make_qp();
  const Frame frame = make_frame(pair.a, pair.b, fresh.number, write_only(), payload);
  EXPECT_EQ(drop_of(pair.b, frame), DropReason::qp_not_ready);
  transport::QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_TRUE(pair.b.engine->modify_qp(pair.now, qb.number, attr, transport::kQpState).ok());
  EXPECT_EQ(drop_of(pair.b, to_b(write_only())), DropReason::qp_not_ready);
}

TEST_F(Frames, LinkThatIsDown) {
  pair.b.engine->set_link_up(pair.now, false);
  EXPECT_EQ(drop_of(pair.b, to_b(write_only())), DropReason::link_down);
  pair.b.engine->set_link_up(pair.now, true);
  EXPECT_EQ(drop_of(pair.b, to_b(write_only())), DropReason::none);
}

TEST_F(Frames, CongestionNotificationIsSeenAndNotUsed) {
  wire::Packet packet;
  packet.bth.opcode = Opcode::kCnp;
  const Frame frame = make_frame(pair.a, pair.b, qb.number, packet);
  EXPECT_EQ(drop_of(pair.b, frame), DropReason::none);
  EXPECT_EQ(pair.b.counters.get(Counter::rp_cnp_ignored), 1u);
}

TEST_F(Frames, MigReqOfEitherValueIsTaken) {
  wire::Packet packet = write_only();
  packet.bth.mig_req = false;
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
}

TEST_F(Frames, PacketsOutOfSequenceGetOneNak) {
  wire::Packet packet = write_only();
  packet.bth.psn = Psn(102);
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::out_of_sequence_dropped);
  packet.bth.psn = Psn(103);
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::out_of_sequence_dropped);
  const auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(parse(out[0]).aeth.syndrome, 0x60);
  EXPECT_EQ(parse(out[0]).bth.psn, Psn(100));
}

TEST_F(Frames, EachGapGetsItsOwnNak) {
  wire::Packet packet = write_only();
  for (const std::uint32_t expected : {100u, 102u, 104u}) {
    packet.bth.psn = Psn(expected + 1);
    pair.deliver(pair.b, std::array{to_b(packet)});
    const auto out = pair.collect(pair.b);
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(parse(out[0]).aeth.syndrome, 0x60);
    EXPECT_EQ(parse(out[0]).bth.psn, Psn(expected));
    for (const std::uint32_t psn : {expected, expected + 1}) {
      packet.bth.psn = Psn(psn);
      EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
    }
    pair.collect(pair.b);
  }
}

TEST_F(Frames, ReorderedWithinABurstIsReportedNoMoreWhenTheGapIsFilled) {
  wire::Packet later = write_only();
  later.bth.psn = Psn(101);
  pair.deliver(pair.b, std::array{to_b(later), to_b(write_only())});
  const auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(parse(out[0]).aeth.syndrome, 0x1f);
  EXPECT_EQ(parse(out[0]).bth.psn, Psn(100));
}

TEST_F(Frames, DuplicatesAreAcknowledgedWithTheNewestPsnAskedOrNot) {
  wire::Packet packet = write_only();
  for (const std::uint32_t psn : {100u, 101u, 102u}) {
    packet.bth.psn = Psn(psn);
    EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
  }
  pair.collect(pair.b);
  packet.bth.psn = Psn(100);
  packet.bth.ack_req = false;
  payload.fill(std::byte{0x77});
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
  const auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(parse(out[0]).bth.psn, Psn(102));
  EXPECT_EQ(parse(out[0]).aeth.msn, 3u);
  EXPECT_EQ(pair.b.counters.get(Counter::duplicate_request), 1u);
  EXPECT_EQ(pair.b.buffer[0], std::byte{0});  // executed once
}

TEST_F(Frames, DuplicatesThatMatchNothing) {
  wire::Packet packet = write_only();
  EXPECT_EQ(drop_of(pair.b, to_b(packet)), DropReason::none);
  packet.bth.opcode = Opcode::kRcCompareSwap;
  packet.bth.psn = Psn(90);
  packet.atomic = {kBufferVa, pair.b.keys.rkey, 1, 0};
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, qb.number, packet)),
            DropReason::invalid_duplicate);
  packet.bth.opcode = Opcode::kRcReadRequest;
  packet.reth = {kBufferVa, pair.b.keys.rkey ^ 5, 100};
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, qb.number, packet)),
            DropReason::invalid_duplicate);
  // Reaches from the past into what is expected.
  packet.bth.psn = Psn(100);
  packet.reth = {kBufferVa, pair.b.keys.rkey, 300};
  EXPECT_EQ(drop_of(pair.b, make_frame(pair.a, pair.b, qb.number, packet)),
            DropReason::invalid_duplicate);
  EXPECT_EQ(pair.b.engine->query_qp(qb.number)->state, QpState::kRts);
}

TEST_F(Frames, ResponsesToNothing) {
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100))),
            DropReason::ghost_response);
  post(WrOpcode::kRdmaWrite, 10);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 101))),
            DropReason::ghost_response);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 99))),
            DropReason::stale_response);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcReadResponseOnly, 100), payload)),
            DropReason::ghost_response);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100, 0x40))),
            DropReason::bad_response);
  EXPECT_TRUE(pair.a.poll_all().empty());
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100))), DropReason::none);
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100))),
            DropReason::stale_response);
}

TEST_F(Frames, OneAcknowledgementEndsAllRequestsUpToIt) {
  for (int i = 0; i < 5; ++i) post(WrOpcode::kRdmaWrite, 600);  // three packets each
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100 + 10))), DropReason::none);
  EXPECT_EQ(pair.a.poll_all().size(), 3u);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100 + 14))), DropReason::none);
  EXPECT_EQ(pair.a.poll_all().size(), 2u);
}

TEST_F(Frames, NakCodesAndTheirStatuses) {
  const std::array<std::pair<std::uint8_t, WcStatus>, 5> cases = {{
      {0x61, WcStatus::kRemInvReqErr},
      {0x62, WcStatus::kRemAccessErr},
      {0x63, WcStatus::kRemOpErr},
      {0x64, WcStatus::kRemInvRdReqErr},
      {0x7f, WcStatus::kBadRespErr},
  }};
  for (const auto& [syndrome, status] : cases) {
    SCOPED_TRACE(static_cast<int>(syndrome));
    post(WrOpcode::kRdmaWrite, 10);
    EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 100, syndrome))),
              DropReason::none);
    expect_failed(status);
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, {.mtu = 256});
  }
}

TEST_F(Frames, NakAcknowledgesWhatCameBeforeIt) {
  for (int i = 0; i < 3; ++i) post(WrOpcode::kRdmaWrite, 10);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcAcknowledge, 101, 0x62))), DropReason::none);
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

TEST_F(Frames, ReadResponsesThatDoNotFitTheirRequest) {
  std::array<std::byte, 256> full{};
  struct Case {
    Opcode opcode;
    std::size_t bytes;
  };
  // 300 bytes were asked for: 256 and then 44.
  for (const Case& c :
       {Case{Opcode::kRcReadResponseFirst, 252}, Case{Opcode::kRcReadResponseOnly, 256},
        Case{Opcode::kRcReadResponseLast, 256}, Case{Opcode::kRcAtomicAcknowledge, 0}}) {
    SCOPED_TRACE(static_cast<int>(c.opcode));
    post(WrOpcode::kRdmaRead, 300);
    EXPECT_EQ(drop_of(pair.a, to_a(response(c.opcode, 100), std::span(full).first(c.bytes))),
              DropReason::bad_response);
    expect_failed(WcStatus::kBadRespErr);
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, {.mtu = 256});
  }
}

TEST_F(Frames, ReadResponseThatGoesOnWithMiddleAndLastAsRxeDoes) {
  std::array<std::byte, 256> full;
  full.fill(std::byte{0x11});
  post(WrOpcode::kRdmaRead, 600);
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcReadResponseFirst, 100), full)),
            DropReason::none);
  EXPECT_EQ(
      drop_of(pair.a, to_a(response(Opcode::kRcReadResponseLast, 102), std::span(full).first(88))),
      DropReason::bad_response);
  const auto again = pair.collect(pair.a);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(parse(again[0]).bth.psn, Psn(101));
  EXPECT_EQ(drop_of(pair.a, to_a(response(Opcode::kRcReadResponseMiddle, 101), full)),
            DropReason::none);
  EXPECT_EQ(
      drop_of(pair.a, to_a(response(Opcode::kRcReadResponseLast, 102), std::span(full).first(88))),
      DropReason::none);
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
}

TEST_F(Frames, ReadAskedForAgainHalfWayIsAnsweredAnewOrGoesOnAsRxeDoes) {
  for (const Personality personality : {Personality::kIbta, Personality::kRxe}) {
    HostOptions options;
    options.engine.personality = personality;
    Pair other(options);
    QpHandle xa = other.a.make_qp();
    QpHandle xb = other.b.make_qp();
    other.connect(xa, xb, {.mtu = 256});
    wire::Packet read;
    read.bth.opcode = Opcode::kRcReadRequest;
    read.bth.psn = Psn(100);
    read.reth = {kBufferVa, other.b.keys.rkey, 900};
    other.deliver(other.b, std::array{make_frame(other.a, other.b, xb.number, read)});
    EXPECT_EQ(other.collect(other.b).size(), 4u);
    read.bth.psn = Psn(102);
    read.reth = {kBufferVa + 512, other.b.keys.rkey, 900 - 512};
    other.deliver(other.b, std::array{make_frame(other.a, other.b, xb.number, read)});
    const auto again = other.collect(other.b);
    ASSERT_EQ(again.size(), 2u);
    EXPECT_EQ(parse(again[0]).bth.psn, Psn(102));
    EXPECT_EQ(parse(again[0]).bth.opcode, personality == Personality::kRxe
                                              ? Opcode::kRcReadResponseMiddle
                                              : Opcode::kRcReadResponseFirst);
    EXPECT_EQ(parse(again[1]).bth.opcode, Opcode::kRcReadResponseLast);
  }
}

TEST_F(Frames, ReadAskedForAgainAheadOfItsAnswerLosesNothingOfIt) {
  wire::Packet read;
  read.bth.opcode = Opcode::kRcReadRequest;
  read.bth.psn = Psn(100);
  read.reth = {kBufferVa, pair.b.keys.rkey, 1000};
  pair.deliver(pair.b, std::array{make_frame(pair.a, pair.b, qb.number, read)});
  ASSERT_EQ(pair.b.engine->poll_transmit(pair.now, pair.b.sink, 1), 1u);
  read.bth.psn = Psn(102);
  read.reth = {kBufferVa + 512, pair.b.keys.rkey, 1000 - 512};
  pair.deliver(pair.b, std::array{make_frame(pair.a, pair.b, qb.number, read)});
  const auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(parse(out[i]).bth.psn, Psn(100 + i));
}

TEST_F(Frames, WriteWithImmediateThatFindsNoReceiveIsNotExecuted) {
  payload.fill(std::byte{0x42});
  wire::Packet packet = write_only();
  packet.bth.opcode = Opcode::kRcWriteOnlyImm;
  packet.imm = {7};
  pair.deliver(pair.b, std::array{to_b(packet)});
  auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(parse(out[0]).aeth.syndrome & 0x60, 0x20);
  EXPECT_EQ(pair.b.buffer[0], std::byte{0});
  pair.b.post_recv(qb, {}, 3);
  pair.deliver(pair.b, std::array{to_b(packet)});
  out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(parse(out[0]).aeth.syndrome, 0x1f);
  EXPECT_EQ(pair.b.buffer[0], std::byte{0x42});
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 3u);
  EXPECT_EQ(done[0].immediate, 7u);
  EXPECT_EQ(done[0].byte_length, 4u);
}

TEST_F(Frames, ReadsUpToTheNextPowerOfTwoAreTakenAndOneMoreIsInvalid) {
  qa = pair.a.make_qp();
  qb = pair.b.make_qp();
  pair.connect(qa, qb, {.mtu = 256, .rd_atomic = 3});
  wire::Packet read;
  read.bth.opcode = Opcode::kRcReadRequest;
  read.reth = {kBufferVa, pair.b.keys.rkey, 10};
  std::vector<Frame> requests;
  for (std::uint32_t psn = 100; psn < 105; ++psn) {
    read.bth.psn = Psn(psn);
    requests.push_back(make_frame(pair.a, pair.b, qb.number, read));
  }
  pair.deliver(pair.b, requests);
  const auto out = pair.collect(pair.b);
  ASSERT_EQ(out.size(), 5u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parse(out[i]).bth.opcode, Opcode::kRcReadResponseOnly);
  }
  EXPECT_EQ(parse(out[4]).aeth.syndrome, 0x61);
}

TEST_F(Frames, AckReqComesAtTheEndOfAMessageAndEverySoOftenWithinIt) {
  for (const Personality personality : {Personality::kIbta, Personality::kRxe}) {
    HostOptions options;
    options.engine.personality = personality;
    Pair other(options);
    QpHandle xa = other.a.make_qp();
    QpHandle xb = other.b.make_qp();
    other.connect(xa, xb, {.mtu = 256});
    SendOptions send;
    send.rkey = other.b.keys.rkey;
    other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 256 * 140)},
                      send);
    const auto out = other.collect(other.a);
    ASSERT_EQ(out.size(), 140u);
    const std::size_t interval = personality == Personality::kRxe ? 66 : 32;
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(parse(out[i]).bth.ack_req, (i + 1) % interval == 0 || i + 1 == out.size()) << i;
    }
  }
}

TEST_F(Frames, RequestsOutOfTurnAreInvalid) {
  std::array<std::byte, 256> full{};
  const auto refused = [&](std::span<const wire::Packet> packets) {
    std::uint32_t psn = 100;
    for (wire::Packet packet : packets) {
      packet.bth.psn = Psn(psn++);
      const auto& info = packet.info();
      pair.deliver(pair.b,
                   std::array{make_frame(pair.a, pair.b, qb.number, packet,
                                         info.ends_message() ? std::span<const std::byte>(payload)
                                                             : std::span<const std::byte>(full))});
    }
    const auto out = pair.collect(pair.b);
    ASSERT_FALSE(out.empty());
    EXPECT_EQ(parse(out.back()).aeth.syndrome, 0x61);
    EXPECT_EQ(parse(out.back()).bth.psn, Psn(psn - 1));
    EXPECT_EQ(pair.b.engine->query_qp(qb.number)->state, QpState::kErr);
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, {.mtu = 256});
  };
  const auto packet_of = [&](Opcode opcode, std::uint32_t length = 300) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.reth = {kBufferVa, pair.b.keys.rkey, length};
    return packet;
  };
  refused(std::array{packet_of(Opcode::kRcWriteMiddle)});
  refused(std::array{packet_of(Opcode::kRcSendLast)});
  refused(std::array{packet_of(Opcode::kRcWriteFirst), packet_of(Opcode::kRcWriteFirst)});
  refused(std::array{packet_of(Opcode::kRcWriteFirst), packet_of(Opcode::kRcWriteOnly, 4)});
  refused(std::array{packet_of(Opcode::kRcWriteFirst, 1000), packet_of(Opcode::kRcWriteLast)});
  refused(std::array{packet_of(Opcode::kRcWriteFirst, 256)});  // leaves nothing for a LAST
  refused(std::array{packet_of(Opcode::kRcWriteOnly, 5)});
}

TEST_F(Frames, LocalStatusesOfRequestsThatCannotBe) {
  struct Case {
    WrOpcode opcode;
    std::uint32_t lengths[2];
    WcStatus status;
  };
  for (const Case& c : {
           Case{WrOpcode::kRdmaWrite, {1u << 31, 1}, WcStatus::kLocLenErr},
           Case{WrOpcode::kRdmaRead, {1u << 31, 1}, WcStatus::kLocLenErr},
           Case{WrOpcode::kAtomicFetchAndAdd, {4, 0}, WcStatus::kLocLenErr},
           Case{WrOpcode::kBindMw, {0, 0}, WcStatus::kMwBindErr},
           Case{static_cast<WrOpcode>(99), {0, 0}, WcStatus::kLocQpOpErr},
           Case{WrOpcode::kRdmaWrite, {kBufferBytes, 8}, WcStatus::kLocProtErr},
       }) {
    SCOPED_TRACE(static_cast<int>(c.opcode));
    SendOptions options;
    options.rkey = pair.b.keys.rkey;
    options.flags = 0;
    pair.a.post_send(pair.now, qa, c.opcode,
                     std::array{pair.a.sge(8, c.lengths[0]), pair.a.sge(0, c.lengths[1])}, options);
    pair.collect(pair.a);
    expect_failed(c.status);
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, {.mtu = 4096});
  }
}

}  // namespace
}  // namespace rocemu::engine::test
