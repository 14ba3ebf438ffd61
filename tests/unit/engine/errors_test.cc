// What goes wrong: NAKs, RNR, time-outs, faults of client memory, hostile rings and frames, flush
// and states.
#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/transport/rnr_timer.h"
#include "dataplane/wire/packet.h"
#include "rocemu/abi/doorbell.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

struct Errors : testing::Test {
  void connect(const ConnectOptions& options = {}) {
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, options);
  }
  SendOptions to_b() const {
    SendOptions options;
    options.rkey = pair.b.keys.rkey;
    return options;
  }
  QpState state_of(Host& host, QpNum qp) { return host.engine->query_qp(qp)->state; }
  void expect_one(WcStatus status) {
    ASSERT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    ASSERT_GE(done.size(), 1u);
    EXPECT_EQ(done[0].status, status);
    EXPECT_EQ(state_of(pair.a, qa.number), QpState::kErr);
  }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
};

TEST_F(Errors, WrongRkeyIsARemoteAccessErrorAtBothEnds) {
  for (const WrOpcode opcode :
       {WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kAtomicFetchAndAdd}) {
    connect();
    SendOptions options = to_b();
    options.rkey ^= 0x1234;
    pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(0, 8)}, options);
    expect_one(WcStatus::kRemAccessErr);
    EXPECT_EQ(state_of(pair.b, qb.number), QpState::kErr);
  }
  EXPECT_EQ(pair.b.counters.get(Counter::resp_remote_access_errors), 3u);
}

TEST_F(Errors, RangePastTheRegionIsARemoteAccessError) {
  connect();
  SendOptions options = to_b();
  options.remote_va = kBufferVa + kBufferBytes - 7;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 8)}, options);
  expect_one(WcStatus::kRemAccessErr);
}

TEST_F(Errors, RequestsThatTheQpDoesNotAllowAreInvalid) {
  connect({.access = memory::kAccessLocalWrite});
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 8)}, to_b());
  expect_one(WcStatus::kRemInvReqErr);
}

TEST_F(Errors, MisalignedAtomicIsInvalid) {
  connect();
  SendOptions options = to_b();
  options.remote_va += 4;
  pair.a.post_send(pair.now, qa, WrOpcode::kAtomicFetchAndAdd, std::array{pair.a.sge(0, 8)},
                   options);
  expect_one(WcStatus::kRemInvReqErr);
}

TEST_F(Errors, SendLongerThanTheReceiveIsInvalidThereAndALengthErrorHere) {
  connect();
  pair.b.post_recv(qb, std::array{pair.b.sge(0, 100)}, 9);
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, 101)}, to_b());
  expect_one(WcStatus::kRemInvReqErr);
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(received[0].wr_id, 9u);
}

TEST_F(Errors, WrongLkeyFailsLocallyAndSendsNothing) {
  connect();
  auto sge = pair.a.sge(0, 8);
  sge.lkey ^= 1;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{sge}, to_b());
  expect_one(WcStatus::kLocProtErr);
  EXPECT_EQ(pair.a_frames, 0u);
}

TEST_F(Errors, ReceiveWithAWrongLkeyIsAProtectionErrorAndARemoteOperationalError) {
  connect();
  auto sge = pair.b.sge(0, 100);
  sge.lkey ^= 1;
  pair.b.post_recv(qb, std::array{sge}, 9);
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, 50)}, to_b());
  expect_one(WcStatus::kRemOpErr);
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
}

// A region that passes the checks and whose memory is not there: munmapped since.
memory::MrKeys add_hole(Host& host, std::uint64_t begin_in_buffer, std::uint64_t length) {
  memory::MrAttr attr;
  attr.pd = PdId{1};
  attr.space = host.space;
  attr.iova = attr.client_va = kBufferVa + begin_in_buffer;
  attr.length = length;
  attr.access = kAllAccess;
  return host.regions.add(attr).value();
}

TEST_F(Errors, FaultInTheMiddleOfAGatherEndsTheRequestAfterThoseBeforeIt) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.a, kBufferBytes - 512, 2048);
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 600)}, to_b());
  SendOptions options = to_b();
  options.wr_id = 2;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite,
                   std::array{transport::Sge{kBufferVa + kBufferBytes - 512, 2048, hole.lkey}},
                   options);
  options.wr_id = 3;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 600)}, options);
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].wr_id, 2u);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  EXPECT_GE(pair.a.counters.get(Counter::memory_faults), 1u);
  EXPECT_EQ(pair.a_frames, 5u);  // three, and two up to the hole; nothing from behind it
}

TEST_F(Errors, FaultInTheMiddleOfAScatterIsNotAcknowledged) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.b, kBufferBytes - 512, 2048);
  SendOptions options;
  options.rkey = hole.rkey;
  options.remote_va = kBufferVa + kBufferBytes - 512;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 2048)}, options);
  expect_one(WcStatus::kRemOpErr);
  EXPECT_EQ(state_of(pair.b, qb.number), QpState::kErr);
}

TEST_F(Errors, FaultOfAReadAtTheResponder) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.b, kBufferBytes - 512, 2048);
  SendOptions options;
  options.rkey = hole.rkey;
  options.remote_va = kBufferVa + kBufferBytes - 512;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(0, 2048)}, options);
  expect_one(WcStatus::kRemOpErr);
}

TEST_F(Errors, RnrWaitsExactlyTheTimeThatTheResponderAsksFor) {
  connect({.min_rnr_timer = 14});
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, 10)}, to_b());
  while (pair.turn()) {
  }
  EXPECT_EQ(pair.a.counters.get(Counter::rnr_nak_retry_err), 1u);
  const auto deadline = pair.a.engine->next_deadline();
  ASSERT_TRUE(deadline.has_value());
  EXPECT_EQ((*deadline - pair.now).ns, microseconds(1280).ns);
  pair.b.post_recv(qb, std::array{pair.b.sge(0, 100)}, 5);
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
}

TEST_F(Errors, RnrRetriesRunOut) {
  connect({.rnr_retry = 3});
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, 10)}, to_b());
  expect_one(WcStatus::kRnrRetryExcErr);
  EXPECT_EQ(pair.a.counters.get(Counter::rnr_nak_retry_err), 4u);
}

TEST_F(Errors, AckTimeoutIsTrueAndRetriesAreCounted) {
  connect({.timeout = 8, .retry_count = 3});
  pair.a_to_b = [](std::size_t) { return Fate::kDrop; };
  const Time begin = pair.now;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 10)}, to_b());
  // Four time-outs of 4.096 us * 2^8; each sending takes one turn of 100 ns.
  const Duration expected = nanoseconds(4096) * (1 << 8) * 4;
  ASSERT_TRUE(pair.run(begin + expected - microseconds(1)));
  EXPECT_TRUE(pair.a.poll_all().empty());
  ASSERT_TRUE(pair.run(begin + expected + microseconds(2)));
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRetryExcErr);
  EXPECT_EQ(pair.a_frames, 4u);
  EXPECT_EQ(pair.a.counters.get(Counter::local_ack_timeout_err), 4u);
}

TEST_F(Errors, RetrySevenIsFiniteAndForEverUnderThePersonalityOfRxe) {
  connect({.timeout = 1, .retry_count = 7});
  pair.a_to_b = [](std::size_t) { return Fate::kDrop; };
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 10)}, to_b());
  expect_one(WcStatus::kRetryExcErr);
  EXPECT_EQ(pair.a_frames, 8u);

  HostOptions rxe;
  rxe.engine.personality = Personality::kRxe;
  Pair other(rxe);
  QpHandle xa = other.a.make_qp();
  QpHandle xb = other.b.make_qp();
  other.connect(xa, xb, {.timeout = 1, .retry_count = 7});
  other.a_to_b = [](std::size_t n) { return n < 50 ? Fate::kDrop : Fate::kDeliver; };
  SendOptions options;
  options.rkey = other.b.keys.rkey;
  other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 10)}, options);
  ASSERT_TRUE(other.run());
  EXPECT_EQ(other.a.poll_all().at(0).status, WcStatus::kSuccess);
}

TEST_F(Errors, MigReqIsOneAndZeroUnderThePersonalityOfRxe) {
  for (const Personality personality : {Personality::kIbta, Personality::kRxe}) {
    HostOptions options;
    options.engine.personality = personality;
    Pair other(options);
    QpHandle xa = other.a.make_qp();
    QpHandle xb = other.b.make_qp();
    other.connect(xa, xb);
    SendOptions send;
    send.rkey = other.b.keys.rkey;
    other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 10)}, send);
    ASSERT_EQ(other.a.engine->poll_transmit(other.now, other.a.sink, 8), 1u);
    wire::Packet packet;
    ASSERT_EQ(wire::parse_packet(other.a.sink.frames[0], packet), DropReason::none);
    EXPECT_EQ(packet.bth.mig_req, personality == Personality::kIbta);
    ASSERT_TRUE(other.run());
  }
}

TEST_F(Errors, ErrorStateFlushesWhatIsThereAndWhatComesLater) {
  connect();
  pair.a_to_b = [](std::size_t) { return Fate::kDrop; };
  for (std::uint64_t i = 0; i < 5; ++i) {
    SendOptions options = to_b();
    options.wr_id = i;
    options.flags = 0;  // unsignalled: flushed with a completion all the same
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 10)}, options);
    pair.a.post_recv(qa, std::array{pair.a.sge(0, 10)}, 100 + i);
  }
  pair.turn();
  transport::QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_TRUE(pair.a.engine->modify_qp(pair.now, qa.number, attr, transport::kQpState).ok());
  auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 10u);
  for (const Wc& wc : done) EXPECT_EQ(wc.status, WcStatus::kWrFlushErr);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(done[i].wr_id, i);
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 10)}, to_b());
  ASSERT_TRUE(pair.run(pair.now + microseconds(1)));
  done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kWrFlushErr);
  // Receives ring no doorbell: they are looked for.
  pair.a.post_recv(qa, std::array{pair.a.sge(0, 10)}, 200);
  ASSERT_TRUE(pair.run(pair.now + milliseconds(65)));
  done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 200u);
  EXPECT_EQ(done[0].status, WcStatus::kWrFlushErr);
}

TEST_F(Errors, DrainedSendQueueSaysSo) {
  connect();
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 5000)}, to_b());
  pair.a.engine->poll_transmit(pair.now, pair.a.sink, 1);
  transport::QpAttr attr;
  attr.state = QpState::kSqd;
  attr.sqd_async_notify = true;
  ASSERT_TRUE(pair.a.engine
                  ->modify_qp(pair.now, qa.number, attr,
                              transport::kQpState | transport::kQpEnSqdAsyncNotify)
                  .ok());
  EXPECT_TRUE(pair.a.events.async.empty());
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 10)}, to_b());
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(pair.a.events.async.size(), 1u);
  EXPECT_EQ(pair.a.events.async[0].type, AsyncEventType::kSqDrained);
  EXPECT_EQ(pair.a.poll_all().size(), 1u);  // the later one waits
  attr.state = QpState::kRts;
  ASSERT_TRUE(pair.a.engine->modify_qp(pair.now, qa.number, attr, transport::kQpState).ok());
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 1u);
}

TEST_F(Errors, FullCqRaisesOneEventAndLosesCountedCompletions) {
  HostOptions options;
  options.cq_entries = 3;
  Pair other(options);
  QpHandle xa = other.a.make_qp();
  QpHandle xb = other.b.make_qp();
  other.connect(xa, xb);
  SendOptions send;
  send.rkey = other.b.keys.rkey;
  for (int i = 0; i < 6; ++i) {
    other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 8)}, send);
  }
  ASSERT_TRUE(other.run());
  EXPECT_EQ(other.a.poll_all().size(), 3u);
  ASSERT_EQ(other.a.events.async.size(), 2u);
  EXPECT_EQ(other.a.events.async[0].type, AsyncEventType::kCqError);
  EXPECT_EQ(other.a.events.async[1].type, AsyncEventType::kQpFatal);
  EXPECT_EQ(state_of(other.a, xa.number), QpState::kErr);
  EXPECT_EQ(other.a.counters.get(Counter::cq_overflows), 3u);
}

TEST_F(Errors, ArmedCqRaisesOneEventAndSolicitedOnlyForSolicited) {
  connect();
  for (int i = 0; i < 4; ++i) pair.b.post_recv(qb, std::array{pair.b.sge(0, 100)}, 1);
  const auto send = [&](std::uint32_t flags) {
    SendOptions options = to_b();
    options.flags |= flags;
    pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, 10)}, options);
    ASSERT_TRUE(pair.run());
  };
  pair.b.arm(kArmedSolicited);
  send(0);
  EXPECT_TRUE(pair.b.events.completions.empty());
  send(transport::kSendSolicited);
  EXPECT_EQ(pair.b.events.completions.size(), 1u);
  EXPECT_EQ(pair.b.arm_word(), kDisarmed);
  send(0);
  EXPECT_EQ(pair.b.events.completions.size(), 1u);
  // One completion came while the CQ was not armed: arming it now announces that one.
  pair.b.arm(kArmedAny);
  pair.b.engine->on_cq_armed(pair.now, pair.b.cq);
  EXPECT_EQ(pair.b.events.completions.size(), 2u);
  // No completion since: nothing to announce.
  pair.b.arm(kArmedAny);
  pair.b.engine->on_cq_armed(pair.now, pair.b.cq);
  EXPECT_EQ(pair.b.events.completions.size(), 2u);
  send(0);
  EXPECT_EQ(pair.b.events.completions.size(), 3u);
}

TEST_F(Errors, HostileRingsHurtOnlyTheirQp) {
  Prng draw(11);
  for (int round = 0; round < 300; ++round) {
    connect();
    // Garbage in the send ring and its indices, in the receive ring and its.
    for (const auto& ring : {qa.send_ring, qa.recv_ring, qb.recv_ring}) {
      Host& host = &ring == &qb.recv_ring ? pair.b : pair.a;
      std::byte* bytes = host.ring_bytes(ring);
      for (std::size_t i = 128; i < 4096; ++i) {
        if (draw.below(3) == 0) bytes[i] = static_cast<std::byte>(draw.next());
      }
    }
    pair.a.engine->on_doorbells(pair.now, {&qa.number, 1});
    ASSERT_TRUE(pair.run(pair.now + seconds(5)));
    pair.a.poll_all();
    pair.b.poll_all();
    ASSERT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
    ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb.number).ok());
    pair.a.sink.frames.clear();
    pair.b.sink.frames.clear();
    if (round % 5 == 4) {
      // Fresh hosts: the harness hands rings out and takes none back.
      pair.~Pair();
      new (&pair) Pair();
    }
  }
}

// Two QPs of one host take turns in its CQ; `polled` moves the ring's start so that what stays
// wraps.
TEST_F(Errors, CompletionsOfAResetQueuePairGoAndOthersStayInOrder) {
  for (const std::uint32_t polled : {0u, 5u, 250u}) {
    Pair both;
    std::array<QpHandle, 2> ours{both.a.make_qp(), both.a.make_qp()};
    std::array<QpHandle, 2> theirs{both.b.make_qp(), both.b.make_qp()};
    for (int i = 0; i < 2; ++i) both.connect(ours[i], theirs[i]);
    const auto write = [&](int qp, std::uint64_t wr_id) {
      SendOptions options;
      options.rkey = both.b.keys.rkey;
      options.wr_id = wr_id;
      both.a.post_send(both.now, ours[qp], WrOpcode::kRdmaWrite, std::array{both.a.sge(0, 8)},
                       options);
      ASSERT_TRUE(both.run());
    };
    for (std::uint32_t i = 0; i < polled; ++i) {
      write(0, 1000 + i);
      ASSERT_EQ(both.a.poll_all().size(), 1u);
    }
    for (std::uint64_t id = 1; id <= 20; ++id) write(id % 3 == 0 ? 1 : 0, id);
    EXPECT_FALSE(both.a.engine->drop_completions(ours[0].number).ok());  // not in RESET
    transport::QpAttr attr;
    ASSERT_TRUE(both.a.engine->modify_qp(both.now, ours[0].number, attr, transport::kQpState).ok());
    ASSERT_TRUE(both.a.engine->drop_completions(ours[0].number).ok());
    write(1, 21);
    const auto left = both.a.poll_all();
    ASSERT_EQ(left.size(), 7u) << polled;
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(left[i].wr_id, 3 * (i + 1));
      EXPECT_EQ(left[i].qp, ours[1].number.value);
    }
    EXPECT_FALSE(both.a.engine->drop_completions(QpNum{0xfffff}).ok());
  }
}

// Completions that no event announced: arming tells of those that stay, not of those that went.
TEST_F(Errors, ArmingAfterAResetAnnouncesWhatStaysOnly) {
  for (const bool other_stays : {false, true}) {
    Pair both;
    std::array<QpHandle, 2> ours{both.a.make_qp(), both.a.make_qp()};
    std::array<QpHandle, 2> theirs{both.b.make_qp(), both.b.make_qp()};
    SendOptions options;
    options.rkey = both.b.keys.rkey;
    const auto write = [&](int qp) {
      both.a.post_send(both.now, ours[qp], WrOpcode::kRdmaWrite, std::array{both.a.sge(0, 8)},
                       options);
      ASSERT_TRUE(both.run());
    };
    for (int i = 0; i < 2; ++i) both.connect(ours[i], theirs[i]);
    both.a.arm(kArmedAny);
    write(1);  // announced, and stays
    ASSERT_EQ(both.a.events.completions.size(), 1u);
    write(0);
    if (other_stays) write(1);
    transport::QpAttr attr;
    ASSERT_TRUE(both.a.engine->modify_qp(both.now, ours[0].number, attr, transport::kQpState).ok());
    ASSERT_TRUE(both.a.engine->drop_completions(ours[0].number).ok());
    both.a.arm(kArmedAny);
    both.a.engine->on_cq_armed(both.now, both.a.cq);
    EXPECT_EQ(both.a.events.completions.size(), other_stays ? 2u : 1u);
    EXPECT_EQ(both.a.poll_all().size(), other_stays ? 2u : 1u);
  }
}

TEST_F(Errors, RandomAndMangledFramesAreCountedAndHarmNobody) {
  connect();
  Prng draw(3);
  for (int i = 0; i < 20'000; ++i) {
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 200)}, to_b());
    pair.a.engine->poll_transmit(pair.now, pair.a.sink, 4);
    ASSERT_FALSE(pair.a.sink.frames.empty());
    Frame frame = pair.a.sink.frames.front();
    if (i % 4 == 0) {
      for (auto& byte : frame) byte = static_cast<std::byte>(draw.next());
    } else {
      frame[draw.below(frame.size())] ^= static_cast<std::byte>(1u << draw.below(8));
      if (i % 4 == 1) frame.resize(draw.below(frame.size()));
    }
    std::array frames = {RxFrame({frame.data(), frame.size()}, nullptr, nullptr)};
    const std::uint64_t drops = pair.b.counters.get(Counter::port_rcv_errors);
    const std::uint64_t taken = pair.b.counters.get(Counter::port_rcv_packets);
    pair.b.engine->on_frames(pair.now, frames);
    EXPECT_EQ(pair.b.counters.get(Counter::port_rcv_errors) +
                  pair.b.counters.get(Counter::port_rcv_packets),
              drops + taken + 1);
    ASSERT_TRUE(pair.run());
    ASSERT_EQ(pair.a.poll_all().size(), 1u);
  }
  std::uint64_t reasons = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(DropReason::kCount); ++r) {
    reasons += pair.b.counters.get(static_cast<DropReason>(r));
  }
  EXPECT_EQ(reasons, pair.b.counters.get(Counter::port_rcv_errors));
  EXPECT_EQ(state_of(pair.b, qb.number), QpState::kRts);
}

TEST_F(Errors, FullSinkHoldsBackAndGoesOn) {
  connect({.mtu = 256});
  pair.a.sink.room = 3;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 20'000)}, to_b());
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
}

TEST_F(Errors, FencedRequestWaitsForReadsBeforeIt) {
  connect();
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDrop : Fate::kDeliver; };
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(0, 100)}, to_b());
  SendOptions fenced = to_b();
  fenced.flags |= transport::kSendFence;
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(200, 100)}, fenced);
  while (pair.turn()) {
  }
  EXPECT_EQ(pair.a_frames, 1u);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 2u);
}

TEST_F(Errors, OutstandingReadsStayWithinWhatWasNegotiated) {
  connect({.rd_atomic = 2});
  for (std::uint64_t i = 0; i < 10; ++i) {
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(0, 100)}, to_b());
  }
  EXPECT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 64), 2u);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 10u);
  EXPECT_EQ(pair.b.engine->counts().responder_resources, 2u);
}

TEST_F(Errors, DestroyedQpLeavesNothingAndItsNumberIsNotUsedAgainSoon) {
  connect();
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(0, 5000)}, to_b());
  pair.turn();
  ASSERT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
  ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb.number).ok());
  ASSERT_TRUE(pair.run());
  for (const Host* host : {&pair.a, &pair.b}) {
    const ObjectCounts counts = host->engine->counts();
    EXPECT_EQ(counts.qps, 0u);
    EXPECT_EQ(counts.inflight_requests, 0u);
    EXPECT_EQ(counts.responder_resources, 0u);
  }
  EXPECT_NE(pair.a.make_qp().number, qa.number);
}

}  // namespace
}  // namespace rocemu::engine::test
