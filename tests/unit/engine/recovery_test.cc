// Recovery in the corners: late, stale and repeated responses, refusals behind work that is still
// owed, bursts that fail half-way, pools that run dry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "dataplane/transport/rnr_timer.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;
using wire::Opcode;

struct Recovery : testing::Test {
  void connect(const ConnectOptions& options = {}) {
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, options);
  }
  SendOptions to_b(std::uint64_t wr_id = 1, std::uint64_t offset = 0) const {
    SendOptions options;
    options.wr_id = wr_id;
    options.rkey = pair.b.keys.rkey;
    options.remote_va = kBufferVa + offset;
    return options;
  }
  void post(WrOpcode opcode, std::uint64_t offset, std::uint32_t length,
            const SendOptions& options) {
    pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(offset, length)}, options);
  }
  void fill(Host& host, std::uint64_t offset, std::uint32_t length) {
    for (std::uint32_t i = 0; i < length; ++i) {
      host.buffer[offset + i] = static_cast<std::byte>(i * 11 + (i >> 8) + 1);
    }
  }
  QpState state_of(Host& host, QpNum qp) { return host.engine->query_qp(qp)->state; }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
};

TEST_F(Recovery, LateAcknowledgementInTheMiddleOfARetransmission) {
  connect({.mtu = 256, .timeout = 4});
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDelay : Fate::kDeliver; };
  pair.delay = nanoseconds(4096) * 16 + nanoseconds(900);
  fill(pair.a, 0, 2560);
  post(WrOpcode::kRdmaWrite, 0, 2560, to_b(1, 0));
  while (pair.turn()) {
  }
  post(WrOpcode::kRdmaWrite, 0, 300, to_b(2, 5000));
  pair.a.sink.room = 3;  // the retransmission takes turns
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 2u);
  for (const Wc& wc : done) EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), &pair.b.buffer[0], 2560), 0);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), &pair.b.buffer[5000], 300), 0);
}

TEST_F(Recovery, OneLostReadResponseCostsOneRetryHoweverManyBurstsFollowIt) {
  connect({.mtu = 256, .retry_count = 1});
  fill(pair.b, 0, 64 * 256);
  post(WrOpcode::kRdmaRead, 0, 64 * 256, to_b());
  pair.deliver(pair.b, std::vector<Frame>(1, pair.collect(pair.a).front()));
  const auto responses = pair.collect(pair.b);
  ASSERT_EQ(responses.size(), 64u);
  for (std::size_t i = 1; i < responses.size(); ++i) {
    pair.deliver(pair.a, std::vector<Frame>(1, responses[i]));
    // The request goes out again at once; it stays on the way while the old responses come in.
    pair.a.engine->poll_transmit(pair.now, pair.a.sink, 64);
  }
  EXPECT_EQ(pair.a.sink.frames.size(), 1u);
  EXPECT_EQ(pair.a.counters.get(Counter::implied_nak_seq_err), 1u);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 64 * 256), 0);
}

TEST_F(Recovery, ReadGoesOnFromTheMissingPacketWithAddressAndLengthAdvanced) {
  connect({.mtu = 256});
  fill(pair.b, 0, 1100);
  pair.b_to_a = [](std::size_t n) { return n == 2 ? Fate::kDrop : Fate::kDeliver; };
  post(WrOpcode::kRdmaRead, 0, 1100, to_b());
  pair.turn();
  pair.turn();  // the responses before and after the loss
  const auto again = pair.collect(pair.a);
  ASSERT_EQ(again.size(), 1u);
  const wire::Packet request = parse(again[0]);
  EXPECT_EQ(request.bth.opcode, Opcode::kRcReadRequest);
  EXPECT_EQ(request.bth.psn, Psn(102));
  EXPECT_EQ(request.reth.va, kBufferVa + 512);
  EXPECT_EQ(request.reth.dma_length, 1100u - 512);
  pair.deliver(pair.b, std::vector<Frame>(again.begin(), again.end()));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 1100), 0);
}

TEST_F(Recovery, WriteGoesOnInTheMiddleOfItsMessageAfterASequenceNak) {
  connect({.mtu = 256});
  fill(pair.a, 0, 1100);
  pair.a_to_b = [](std::size_t n) { return n == 2 ? Fate::kDrop : Fate::kDeliver; };
  post(WrOpcode::kRdmaWrite, 0, 1100, to_b());
  pair.turn();
  pair.turn();
  const auto again = pair.collect(pair.a);
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(parse(again[0]).bth.opcode, Opcode::kRcWriteMiddle);
  EXPECT_EQ(parse(again[0]).bth.psn, Psn(102));
  EXPECT_EQ(parse(again[2]).bth.opcode, Opcode::kRcWriteLast);
  EXPECT_TRUE(parse(again[2]).bth.ack_req);
  pair.deliver(pair.b, std::vector<Frame>(again.begin(), again.end()));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 1100), 0);
}

TEST_F(Recovery, RefusalBehindAReadComesAfterItsResponses) {
  connect({.mtu = 256});
  fill(pair.b, 0, 20'000);
  post(WrOpcode::kRdmaRead, 0, 20'000, to_b(1));
  SendOptions bad = to_b(2);
  bad.rkey ^= 77;
  post(WrOpcode::kRdmaWrite, 0, 10, bad);
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 20'000), 0);
}

TEST_F(Recovery, ReceiveCompletesThoughTheNextRequestOfTheBurstIsRefused) {
  connect();
  for (std::uint64_t i = 0; i < 2; ++i) pair.b.post_recv(qb, std::array{pair.b.sge(0, 100)}, i);
  post(WrOpcode::kSend, 0, 50, to_b(1));
  SendOptions bad = to_b(2);
  bad.rkey ^= 77;
  post(WrOpcode::kRdmaWrite, 0, 10, bad);
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemAccessErr);
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, WcStatus::kSuccess);
  EXPECT_EQ(received[1].status, WcStatus::kWrFlushErr);
}

// A region that passes the checks and whose memory is not there.
memory::MrKeys add_hole(Host& host, std::uint64_t begin_in_buffer, std::uint64_t length) {
  memory::MrAttr attr;
  attr.pd = PdId{1};
  attr.space = host.space;
  attr.iova = attr.client_va = kBufferVa + begin_in_buffer;
  attr.length = length;
  attr.access = kAllAccess;
  return host.regions.add(attr).value();
}

TEST_F(Recovery, WriteThatFaultsInABurstTakesNoReceiveWithIt) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.b, kBufferBytes - 256, 2048);
  pair.b.post_recv(qb, std::array{pair.b.sge(0, 1000)}, 5);
  post(WrOpcode::kRdmaWrite, 0, 100, to_b(1));
  SendOptions faulty = to_b(2, kBufferBytes - 256);
  faulty.rkey = hole.rkey;
  post(WrOpcode::kRdmaWrite, 0, 512, faulty);
  post(WrOpcode::kSend, 0, 600, to_b(3));
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemOpErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kWrFlushErr);
  ASSERT_EQ(pair.b.events.async.size(), 1u);
  EXPECT_EQ(pair.b.events.async[0].type, AsyncEventType::kQpFatal);
}

TEST_F(Recovery, SendThatFaultsInTheMiddleOfABurstEndsItsReceiveInAProtectionError) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.b, kBufferBytes - 256, 2048);
  const transport::Sge holed{kBufferVa + kBufferBytes - 256, 1024, hole.lkey};
  pair.b.post_recv(qb, std::array{pair.b.sge(0, 1000)}, 4);
  pair.b.post_recv(qb, std::array{holed}, 5);
  pair.b.post_recv(qb, std::array{pair.b.sge(0, 1000)}, 6);
  for (std::uint64_t i = 1; i <= 3; ++i) post(WrOpcode::kSend, 0, 1000, to_b(i));
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemOpErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 3u);
  const std::array expected = {WcStatus::kSuccess, WcStatus::kLocProtErr, WcStatus::kWrFlushErr};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(received[i].status, expected[i]);
    EXPECT_EQ(received[i].wr_id, 4 + i);
  }
}

TEST_F(Recovery, ReadThatFaultsWhereItsDataGoesIsAProtectionErrorHere) {
  connect({.mtu = 256});
  const auto hole = add_hole(pair.a, kBufferBytes - 512, 2048);
  post(WrOpcode::kRdmaRead, 0, 500, to_b(1));
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead,
                   std::array{transport::Sge{kBufferVa + kBufferBytes - 512, 2048, hole.lkey}},
                   to_b(2));
  post(WrOpcode::kRdmaWrite, 0, 500, to_b(3));
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

TEST_F(Recovery, SequenceNaksOfRxeWhileTheRnrTimerRunsCostNoRetry) {
  HostOptions options;
  options.engine.personality = Personality::kRxe;
  Pair other(options);
  QpHandle xa = other.a.make_qp();
  QpHandle xb = other.b.make_qp();
  other.connect(xa, xb, {.retry_count = 2, .min_rnr_timer = 1});
  for (std::uint64_t i = 0; i < 3; ++i) {
    SendOptions send;
    send.wr_id = i;
    other.a.post_send(other.now, xa, WrOpcode::kSend, std::array{other.a.sge(0, 10)}, send);
  }
  const Time begin = other.now;
  ASSERT_TRUE(other.run(begin + microseconds(100)));
  EXPECT_GE(other.a.counters.get(Counter::rnr_nak_retry_err), 8u);
  EXPECT_GE(other.a.counters.get(Counter::packet_seq_err), 8u);
  ASSERT_TRUE(other.a.poll_all().empty());
  for (std::uint64_t i = 0; i < 3; ++i) {
    other.b.post_recv(xb, std::array{other.b.sge(0, 100)}, i);
  }
  ASSERT_TRUE(other.run());
  for (const Wc& wc : other.a.poll_all()) EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_EQ(other.b.poll_all().size(), 3u);
}

TEST_F(Recovery, PacketsBehindAnRnrNakAreDroppedSilently) {
  connect({.min_rnr_timer = 1});
  for (std::uint64_t i = 0; i < 3; ++i) post(WrOpcode::kSend, 0, 10, to_b(i));
  ASSERT_TRUE(pair.run(pair.now + microseconds(50)));
  EXPECT_GE(pair.b.counters.get(Counter::rnr_naks_sent), 4u);
  EXPECT_EQ(pair.b.counters.get(Counter::naks_sent), pair.b.counters.get(Counter::rnr_naks_sent));
  EXPECT_GE(pair.b.counters.get(DropReason::out_of_sequence_dropped), 8u);
}

TEST_F(Recovery, EveryRnrTimerFieldIsItsTimeInTheTable) {
  for (std::uint8_t field = 0; field < 32; ++field) {
    connect({.min_rnr_timer = field});
    post(WrOpcode::kSend, 0, 10, to_b());
    while (pair.turn()) {
    }
    ASSERT_EQ(pair.a_frames, 1u);
    const Time due = pair.now + transport::rnr_timer(field);
    ASSERT_TRUE(pair.run(due - nanoseconds(1)));
    EXPECT_EQ(pair.a_frames, 1u);
    ASSERT_TRUE(pair.run(due));
    EXPECT_EQ(pair.a_frames, 2u);
    ASSERT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
    ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb.number).ok());
    pair.~Pair();
    new (&pair) Pair();
  }
}

TEST_F(Recovery, AckTimerStartsAnewWithProgressOnly) {
  connect({.mtu = 256, .timeout = 10});
  const Duration timeout = nanoseconds(4096) * 1024;
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDeliver : Fate::kDrop; };
  post(WrOpcode::kRdmaWrite, 0, 100, to_b(1));
  while (pair.turn()) {
  }
  ASSERT_EQ(pair.a.poll_all().size(), 1u);
  pair.now = pair.now + milliseconds(3);
  const Time sent = pair.now;
  post(WrOpcode::kRdmaWrite, 0, 100, to_b(2));
  while (pair.turn()) {
  }
  pair.now = pair.now + milliseconds(2);
  post(WrOpcode::kRdmaWrite, 0, 100, to_b(3));  // newer packets do not put the time-out off
  while (pair.turn()) {
  }
  ASSERT_TRUE(pair.run(sent + timeout - nanoseconds(1)));
  EXPECT_EQ(pair.a.counters.get(Counter::local_ack_timeout_err), 0u);
  ASSERT_TRUE(pair.run(sent + timeout));
  EXPECT_EQ(pair.a.counters.get(Counter::local_ack_timeout_err), 1u);
}

TEST_F(Recovery, CopyOfAReadRequestTakesNothingFromThoseBehindIt) {
  connect({.mtu = 256, .timeout = 20});
  fill(pair.b, 0, 9000);
  for (std::uint64_t i = 0; i < 3; ++i)
    post(WrOpcode::kRdmaRead, i * 3000, 3000, to_b(i, i * 3000));
  auto requests = pair.collect(pair.a);
  ASSERT_EQ(requests.size(), 3u);
  requests.push_back(requests[0]);
  pair.deliver(pair.b, std::vector<Frame>(requests.begin(), requests.end()));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 3u);
  EXPECT_EQ(pair.a.counters.get(Counter::local_ack_timeout_err), 0u);
  EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 9000), 0);
}

TEST_F(Recovery, CopyOfAnAnsweredReadDoesNotCrowdOutTheNext) {
  connect({.rd_atomic = 1});
  fill(pair.b, 0, 200);
  post(WrOpcode::kRdmaRead, 0, 100, to_b(1));
  const auto first = pair.collect(pair.a);
  pair.deliver(pair.b, std::vector<Frame>(1, first[0]));
  pair.deliver(pair.a, std::vector<Frame>(1, pair.collect(pair.b).front()));
  post(WrOpcode::kRdmaRead, 100, 100, to_b(2, 100));
  const auto second = pair.collect(pair.a);
  ASSERT_EQ(second.size(), 1u);
  pair.deliver(pair.b, std::array{first[0], second[0]});
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 2u);
  for (const Wc& wc : done) EXPECT_EQ(wc.status, WcStatus::kSuccess);
}

TEST_F(Recovery, ReadsOfManyQpsShareASmallPoolOfResponderResources) {
  HostOptions options;
  options.engine.limits.max_responder_resources = 4;
  Pair other(options);
  fill(other.b, 0, 3000);
  std::vector<std::pair<QpHandle, QpHandle>> qps;
  for (int i = 0; i < 12; ++i) {
    qps.emplace_back(other.a.make_qp(7), other.b.make_qp(7));
    other.connect(qps.back().first, qps.back().second, {.mtu = 256});
  }
  // The third response of each is lost: duplicates are answered though nothing is kept.
  other.b_to_a = [](std::size_t n) { return n % 12 == 2 ? Fate::kDrop : Fate::kDeliver; };
  for (int round = 0; round < 3; ++round) {
    for (auto& [xa, xb] : qps) {
      SendOptions send;
      send.rkey = other.b.keys.rkey;
      other.a.post_send(other.now, xa, WrOpcode::kRdmaRead, std::array{other.a.sge(0, 3000)}, send);
      ASSERT_TRUE(other.run());
      const auto done = other.a.poll_all();
      ASSERT_EQ(done.size(), 1u);
      ASSERT_EQ(done[0].status, WcStatus::kSuccess);
    }
  }
  EXPECT_EQ(std::memcmp(other.a.buffer.data(), other.b.buffer.data(), 3000), 0);
  EXPECT_LE(other.b.engine->counts().responder_resources, 2u);
}

TEST_F(Recovery, QpsWaitForSendRecordsWithoutSpinning) {
  HostOptions options;
  options.engine.limits.max_inflight_requests = 2;
  Pair other(options);
  std::vector<std::pair<QpHandle, QpHandle>> qps;
  for (int i = 0; i < 5; ++i) {
    qps.emplace_back(other.a.make_qp(), other.b.make_qp());
    other.connect(qps.back().first, qps.back().second);
  }
  for (auto& [xa, xb] : qps) {
    for (int i = 0; i < 10; ++i) {
      SendOptions send;
      send.rkey = other.b.keys.rkey;
      other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 10)}, send);
    }
  }
  other.collect(other.a);
  EXPECT_FALSE(other.a.engine->has_transmit_work());
  ASSERT_TRUE(other.run());
  EXPECT_EQ(other.a.poll_all().size(), 50u);
}

TEST_F(Recovery, ChangedRingFailsTheRetransmissionAndIsCounted) {
  connect({.timeout = 1});
  pair.a_to_b = [](std::size_t n) { return n == 0 ? Fate::kDrop : Fate::kDeliver; };
  post(WrOpcode::kRdmaWrite, 0, 100, to_b(9));
  while (pair.turn()) {
  }
  std::byte* wqe = pair.a.ring_bytes(qa.send_ring) + rxe::kQueueData;
  store(wqe + rxe::kSendDma + rxe::kDmaLength, std::uint32_t{200});
  store(wqe + rxe::kSendDma + rxe::kDmaData + rxe::kSgeLength, std::uint32_t{200});
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocQpOpErr);
  EXPECT_EQ(done[0].wr_id, 9u);
  EXPECT_EQ(pair.a.counters.get(Counter::client_ring_errors), 1u);
  EXPECT_EQ(pair.a_frames, 1u);
}

TEST_F(Recovery, LongQueuesAreFlushedInPartsAndInOrder) {
  HostOptions options;
  options.cq_entries = 2047;
  Pair other(options);
  QpHandle xa = other.a.make_qp(1023);
  QpHandle xb = other.b.make_qp(7);
  other.connect(xa, xb);
  other.a_to_b = [](std::size_t) { return Fate::kDrop; };
  for (std::uint64_t i = 0; i < 700; ++i) {
    SendOptions send;
    send.wr_id = i;
    other.a.post_send(other.now, xa, WrOpcode::kRdmaWrite, std::array{other.a.sge(0, 8)}, send);
  }
  for (std::uint64_t i = 0; i < 900; ++i) {
    other.a.post_recv(xa, std::array{other.a.sge(0, 8)}, 1000 + i);
  }
  for (int i = 0; i < 6; ++i) other.turn();  // some begun, some not
  transport::QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_TRUE(other.a.engine->modify_qp(other.now, xa.number, attr, transport::kQpState).ok());
  auto done = other.a.poll_all();
  EXPECT_LT(done.size(), 700u);
  ASSERT_TRUE(other.run(other.now + milliseconds(1)));
  for (const Wc& wc : other.a.poll_all()) done.push_back(wc);
  ASSERT_EQ(done.size(), 1600u);
  std::uint64_t next_send = 0;
  std::uint64_t next_receive = 1000;
  for (const Wc& wc : done) {
    EXPECT_EQ(wc.status, WcStatus::kWrFlushErr);
    EXPECT_EQ(wc.wr_id, wc.opcode == WcOpcode::kRecv ? next_receive++ : next_send++);
  }
}

TEST_F(Recovery, RequestsAndResponsesOfOneQpTakeTurns) {
  connect({.mtu = 256});
  // A READ by the peer and a WRITE of ours, both long.
  SendOptions read;
  read.rkey = pair.a.keys.rkey;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaRead, std::array{pair.b.sge(0, 50'000)}, read);
  const auto request = pair.collect(pair.b);
  pair.deliver(pair.a, std::vector<Frame>(1, request.front()));
  post(WrOpcode::kRdmaWrite, 0, 50'000, to_b());
  ASSERT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 32), 32u);
  std::size_t requests = 0;
  for (const Frame& frame : pair.a.sink.frames) requests += parse(frame).info().is_request ? 1 : 0;
  EXPECT_EQ(requests, 16u);
}

TEST_F(Recovery, LongMessageOfOneQpDoesNotHoldUpAnother) {
  connect({.mtu = 256});
  QpHandle xa = pair.a.make_qp();
  QpHandle xb = pair.b.make_qp();
  pair.connect(xa, xb);
  post(WrOpcode::kRdmaWrite, 0, 500'000, to_b());
  pair.a.post_send(pair.now, xa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 8)}, to_b(2));
  ASSERT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 64), 64u);
  const auto is_other = [&](const Frame& frame) {
    return parse(frame).bth.destination_qp == xb.number;
  };
  const auto found = std::ranges::find_if(pair.a.sink.frames, is_other);
  ASSERT_NE(found, pair.a.sink.frames.end());
  EXPECT_LE(found - pair.a.sink.frames.begin(), 16);
}

}  // namespace
}  // namespace rocemu::engine::test
