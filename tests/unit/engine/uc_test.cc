// Unreliable connections: what is lost is lost silently, what follows begins anew, and a send ends
// when it has left (IBTA vol. 1, 9.8.1, 9.8.2).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "dataplane/wire/packet.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::QpType;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint32_t kMtu = 1024;
constexpr std::uint64_t kTarget = 0x8'0000;  ///< Offset in b's buffer.

struct Uc : testing::Test {
  static HostOptions many_completions() {
    HostOptions out;
    out.cq_entries = 1023;
    return out;
  }
  void SetUp() override {
    qa = pair.a.make_qp(511, false, QpType::kUc);
    qb = pair.b.make_qp(511, false, QpType::kUc);
    connect();
    for (std::size_t i = 0; i < pair.a.buffer.size(); ++i) {
      pair.a.buffer[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
  }
  void connect(const ConnectOptions& options = {}) { pair.connect(qa, qb, options); }

  SendOptions to_b(std::uint64_t wr_id = 1) const {
    SendOptions options;
    options.wr_id = wr_id;
    options.rkey = pair.b.keys.rkey;
    options.remote_va = kBufferVa + kTarget;
    return options;
  }
  void send(std::uint64_t offset, std::uint32_t length, WrOpcode opcode = WrOpcode::kSend) {
    pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(offset, length)}, to_b());
  }
  void receive(std::uint32_t length, std::uint64_t wr_id) {
    pair.b.post_recv(qb, std::array{pair.b.sge(kTarget, length)}, wr_id);
  }
  bool is_arrived(std::uint64_t from, std::uint32_t length) const {
    return std::equal(pair.a.buffer.begin() + static_cast<std::ptrdiff_t>(from),
                      pair.a.buffer.begin() + static_cast<std::ptrdiff_t>(from + length),
                      pair.b.buffer.begin() + static_cast<std::ptrdiff_t>(kTarget));
  }
  QpState state_of(Host& host, const QpHandle& qp) {
    return host.engine->query_qp(qp.number)->state;
  }
  void modify(Host& host, const QpHandle& qp, QpState to) {
    transport::QpAttr attr;
    attr.state = to;
    ASSERT_TRUE(host.engine->modify_qp(pair.now, qp.number, attr, transport::kQpState).ok());
  }

  Pair pair{many_completions()};
  QpHandle qa;
  QpHandle qb;
};

TEST_F(Uc, EveryOperationOfEveryLengthArrivesAndNothingIsAnswered) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kSendWithImm, WrOpcode::kRdmaWrite,
                                WrOpcode::kRdmaWriteWithImm}) {
    for (const std::uint32_t length : {0u, 1u, kMtu - 1, kMtu, kMtu + 1, 5 * kMtu + 3}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(opcode) << " of " << length);
      std::ranges::fill(pair.b.buffer, std::byte{0xee});
      const bool takes_receive = opcode != WrOpcode::kRdmaWrite;
      if (takes_receive) receive(length, 77);
      SendOptions options = to_b(42);
      options.immediate = 0xcafe'0001;
      pair.a.post_send(pair.now, qa, opcode, std::array{pair.a.sge(100, length)}, options);
      ASSERT_TRUE(pair.run());
      const auto sent = pair.a.poll_all();
      ASSERT_EQ(sent.size(), 1u);
      EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
      EXPECT_EQ(sent[0].wr_id, 42u);
      EXPECT_TRUE(is_arrived(100, length));
      EXPECT_EQ(pair.b.buffer[kTarget + length], std::byte{0xee});
      const auto received = pair.b.poll_all();
      ASSERT_EQ(received.size(), takes_receive ? 1u : 0u);
      if (!takes_receive) continue;
      EXPECT_EQ(received[0].status, WcStatus::kSuccess);
      EXPECT_EQ(received[0].wr_id, 77u);
      EXPECT_EQ(received[0].byte_length, length);
      const bool is_write = opcode == WrOpcode::kRdmaWriteWithImm;
      EXPECT_EQ(received[0].opcode, is_write ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv);
      if (opcode != WrOpcode::kSend) {
        EXPECT_EQ(received[0].immediate, 0xcafe'0001u);
        EXPECT_EQ(received[0].flags, transport::kWcWithImm);
      }
    }
  }
  EXPECT_EQ(pair.b_frames, 0u);
  EXPECT_FALSE(pair.a.engine->next_deadline());
}

TEST_F(Uc, FramesCarryUcOpcodesAndAskForNoAcknowledgement) {
  send(0, 3 * kMtu);
  send(0, 8, WrOpcode::kRdmaWrite);
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 4u);
  using enum wire::Opcode;
  const std::array expected{kUcSendFirst, kUcSendMiddle, kUcSendLast, kUcWriteOnly};
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const wire::Packet packet = parse(frames[i]);
    EXPECT_EQ(packet.bth.opcode, expected[i]);
    EXPECT_FALSE(packet.bth.ack_req);
    EXPECT_EQ(packet.bth.psn, Psn(100) + static_cast<std::int32_t>(i));
  }
}

TEST_F(Uc, SendEndsWhenItsLastPacketHasLeftAndNotBefore) {
  send(0, 3 * kMtu);
  ASSERT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 2), 2u);
  EXPECT_FALSE(pair.a.poll());
  ASSERT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 2), 1u);
  const auto done = pair.a.poll();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, WcStatus::kSuccess);
}

// Of a message of four packets one is lost: the rest of it is dropped, packet by packet, and the
// message behind it gets the receive that was in use.
TEST_F(Uc, LossOfAnyPacketDropsTheMessageAndKeepsItsReceive) {
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kRdmaWriteWithImm}) {
    for (std::size_t lost = 0; lost < 4; ++lost) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(opcode) << ", lost " << lost);
      const auto dropped = pair.b.counters.get(DropReason::uc_sequence);
      const std::size_t base = pair.a_frames;
      pair.a_to_b = [&](std::size_t n) { return n == base + lost ? Fate::kDrop : Fate::kDeliver; };
      receive(4 * kMtu, 5);
      send(0, 4 * kMtu, opcode);
      send(5000, 3 * kMtu + 9, opcode);
      ASSERT_TRUE(pair.run());
      EXPECT_EQ(pair.a.poll_all().size(), 2u);
      const auto received = pair.b.poll_all();
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].wr_id, 5u);
      EXPECT_EQ(received[0].status, WcStatus::kSuccess);
      EXPECT_EQ(received[0].byte_length, 3 * kMtu + 9);
      EXPECT_TRUE(is_arrived(5000, 3 * kMtu + 9));
      EXPECT_EQ(pair.b.counters.get(DropReason::uc_sequence) - dropped, 3 - lost);
    }
  }
  EXPECT_EQ(pair.b_frames, 0u);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kRts);
}

TEST_F(Uc, MessageOfOnePacketIsTakenAtAnyPsn) {
  for (const Psn psn : {Psn(100), Psn(90), Psn(5'000'000), Psn(0xff'ffff), Psn(0)}) {
    receive(64, 1);
    wire::Packet packet;
    packet.bth.opcode = wire::Opcode::kUcSendOnly;
    packet.bth.psn = psn;
    const std::array<std::byte, 8> payload{std::byte{1}};
    pair.deliver(pair.b, std::array{make_frame(pair.a, pair.b, qb.number, packet, payload)});
    const auto done = pair.b.poll();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->byte_length, 8u);
  }
}

TEST_F(Uc, PacketsThatDoNotContinueTheMessageDropIt) {
  const std::vector<std::byte> full(kMtu, std::byte{3});
  const auto frame = [&](wire::Opcode opcode, int psn, std::size_t bytes = kMtu) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = Psn(100) + psn;
    packet.reth = {kBufferVa, pair.b.keys.rkey, 2 * kMtu};
    return make_frame(pair.a, pair.b, qb.number, packet, std::span(full).first(bytes));
  };
  using enum wire::Opcode;
  receive(8 * kMtu, 1);
  // The end of another kind of message; then the right end, too late.
  pair.deliver(pair.b, std::array{frame(kUcSendFirst, 0), frame(kUcWriteLast, 1),
                                  frame(kUcSendLast, 2), frame(kUcSendMiddle, 3)});
  EXPECT_EQ(pair.b.counters.get(DropReason::uc_sequence), 3u);
  // A first packet that is not full, and one that is too long for the path.
  pair.deliver(pair.b, std::array{frame(kUcSendFirst, 4, 8), frame(kUcSendLast, 5)});
  EXPECT_EQ(pair.b.counters.get(DropReason::bad_payload_length), 1u);
  EXPECT_EQ(pair.b.counters.get(DropReason::uc_sequence), 4u);
  // A WRITE whose payload is not what its RETH said.
  pair.deliver(pair.b, std::array{frame(kUcWriteFirst, 6), frame(kUcWriteLast, 7, 8)});
  EXPECT_EQ(pair.b.counters.get(DropReason::bad_payload_length), 2u);
  EXPECT_FALSE(pair.b.poll());
  pair.deliver(pair.b, std::array{frame(kUcSendOnly, 8, 8)});
  ASSERT_TRUE(pair.b.poll());
  EXPECT_EQ(state_of(pair.b, qb), QpState::kRts);
}

TEST_F(Uc, MessageWithoutAReceiveIsDropped) {
  send(0, 2 * kMtu);
  send(0, 8, WrOpcode::kRdmaWriteWithImm);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 2u);
  EXPECT_EQ(pair.b.counters.get(DropReason::no_receive_buffer), 2u);
  EXPECT_EQ(pair.b.counters.get(DropReason::uc_sequence), 1u);
  EXPECT_EQ(pair.b.counters.get(Counter::out_of_buffer), 2u);
  receive(64, 9);
  send(64, 64);
  ASSERT_TRUE(pair.run());
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 9u);
  EXPECT_TRUE(is_arrived(64, 64));
}

TEST_F(Uc, WriteThatMayNotBeIsDroppedAndHurtsNobody) {
  const auto write = [&](SendOptions options) {
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 2 * kMtu)},
                     options);
    ASSERT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  };
  SendOptions options = to_b();
  options.rkey ^= 0x40;
  write(options);
  options = to_b();
  options.remote_va = kBufferVa + kBufferBytes - kMtu;
  write(options);
  EXPECT_EQ(pair.b.counters.get(DropReason::access_refused), 2u);
  EXPECT_EQ(pair.b.counters.get(Counter::key_violations), 2u);
  transport::QpAttr attr;
  attr.access = memory::kAccessLocalWrite;
  ASSERT_TRUE(pair.b.engine->modify_qp(pair.now, qb.number, attr, transport::kQpAccessFlags).ok());
  write(to_b());
  EXPECT_EQ(pair.b.counters.get(DropReason::access_refused), 3u);
  EXPECT_EQ(pair.b.counters.get(DropReason::uc_sequence), 3u);  // the LAST of each
  EXPECT_EQ(state_of(pair.b, qb), QpState::kRts);
  EXPECT_EQ(pair.b_frames, 0u);
}

TEST_F(Uc, SendLongerThanTheReceiveIsALengthErrorThere) {
  receive(kMtu + 1, 4);
  receive(kMtu, 5);
  send(0, 2 * kMtu);
  ASSERT_TRUE(pair.run(pair.now + milliseconds(1)));
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(received[0].wr_id, 4u);
  EXPECT_EQ(received[1].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kErr);
  EXPECT_EQ(pair.a.poll_all()[0].status, WcStatus::kSuccess);
}

TEST_F(Uc, ReceiveIntoMemoryThatIsNotItsIsAProtectionError) {
  transport::Sge foreign = pair.b.sge(0, 64);
  foreign.lkey ^= 0x100;
  pair.b.post_recv(qb, std::array{foreign}, 6);
  send(0, 64);
  ASSERT_TRUE(pair.run(pair.now + milliseconds(1)));
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(state_of(pair.b, qb), QpState::kErr);
}

TEST_F(Uc, LocalErrorStopsTheSendQueueOnlyAndRtsGoesOn) {
  send(0, 64, WrOpcode::kRdmaWrite);
  send(0, 64, WrOpcode::kRdmaRead);
  send(0, 64, WrOpcode::kRdmaWrite);
  ASSERT_TRUE(pair.run());
  auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocQpOpErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(state_of(pair.a, qa), QpState::kSqe);

  // What is posted in SQE is flushed; what comes in is received.
  send(0, 64, WrOpcode::kRdmaWrite);
  pair.a.post_recv(qa, std::array{pair.a.sge(0x9'0000, 64)}, 3);
  pair.b.post_send(pair.now, qb, WrOpcode::kSend, std::array{pair.b.sge(0, 16)}, SendOptions{});
  ASSERT_TRUE(pair.run());
  done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 2u);
  std::ranges::sort(done, {}, &Wc::status);
  EXPECT_EQ(done[0].opcode, WcOpcode::kRecv);
  EXPECT_EQ(done[0].byte_length, 16u);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);

  modify(pair.a, qa, QpState::kRts);
  send(200, 64, WrOpcode::kRdmaWrite);
  ASSERT_TRUE(pair.run());
  done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_TRUE(is_arrived(200, 64));
}

TEST_F(Uc, MoreThanABatchIsFlushedInSqeAndNothingOfItIsSentAfterRts) {
  transport::Sge foreign = pair.a.sge(0, 64);
  foreign.lkey ^= 0x100;
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{foreign}, to_b());
  for (int i = 0; i < 400; ++i) send(0, 64, WrOpcode::kRdmaWrite);
  ASSERT_NE(pair.turn(), true);  // the error; nothing leaves
  ASSERT_EQ(state_of(pair.a, qa), QpState::kSqe);
  EXPECT_LT(pair.a.poll_all().size(), 300u);
  modify(pair.a, qa, QpState::kRts);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a_frames, 0u);
  send(0, 64, WrOpcode::kRdmaWrite);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a_frames, 1u);
}

TEST_F(Uc, SecondPacketThatCannotBeReadFailsTheMessage) {
  transport::Sge foreign = pair.a.sge(0, kMtu);
  foreign.lkey ^= 0x100;
  receive(4 * kMtu, 1);
  pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(0, kMtu), foreign}, to_b());
  ASSERT_TRUE(pair.run());
  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(state_of(pair.a, qa), QpState::kSqe);
  modify(pair.a, qa, QpState::kRts);
  send(300, 2 * kMtu);
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(pair.b.poll_all().size(), 1u);
  EXPECT_TRUE(is_arrived(300, 2 * kMtu));
}

TEST_F(Uc, SqdDrainsAndSaysSo) {
  send(0, 3 * kMtu);
  ASSERT_EQ(pair.a.engine->poll_transmit(pair.now, pair.a.sink, 1), 1u);
  transport::QpAttr attr;
  attr.state = QpState::kSqd;
  attr.sqd_async_notify = true;
  ASSERT_TRUE(pair.a.engine
                  ->modify_qp(pair.now, qa.number, attr,
                              transport::kQpState | transport::kQpEnSqdAsyncNotify)
                  .ok());
  EXPECT_TRUE(pair.a.events.async.empty());
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(pair.a.events.async.size(), 1u);
  EXPECT_EQ(pair.a.events.async[0].type, AsyncEventType::kSqDrained);
  EXPECT_EQ(pair.a.poll_all().size(), 1u);
}

TEST_F(Uc, FirstPacketInRtrEstablishesTheCommunication) {
  QpHandle q = pair.b.make_qp(15, false, QpType::kUc);
  bring_up(pair.b, q.number, pair.a, qa.number, Psn(1), Psn(0), {}, pair.now, QpState::kRtr);
  pair.b.post_recv(q, std::array{pair.b.sge(0, 64)}, 2);
  wire::Packet packet;
  packet.bth.opcode = wire::Opcode::kUcSendOnly;
  pair.deliver(pair.b, std::array{make_frame(pair.a, pair.b, q.number, packet)});
  ASSERT_EQ(pair.b.events.async.size(), 1u);
  EXPECT_EQ(pair.b.events.async[0].type, AsyncEventType::kCommEstablished);
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
}

}  // namespace
}  // namespace rocemu::engine::test
