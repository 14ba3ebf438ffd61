// What the responder must refuse, and in which order it acts, packet by packet: frames made by
// hand, delivered in one burst where the order within a burst matters.
#include <gtest/gtest.h>

#include <cstring>

#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using wire::NakCode;
using wire::Opcode;

constexpr std::uint32_t kMtu = 256;

struct Responder : testing::Test {
  void connect(const ConnectOptions& options = {.mtu = kMtu}) {
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, options);
  }
  Frame request(Opcode opcode, std::uint32_t psn, const wire::Reth& reth, std::size_t bytes) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = Psn(psn);
    packet.bth.ack_req = true;
    packet.reth = reth;
    const std::vector<std::byte> payload(bytes, std::byte{0x77});
    return make_frame(pair.a, pair.b, qb.number, packet, payload);
  }
  Frame atomic(Opcode opcode, std::uint32_t psn, const wire::AtomicEth& eth) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = Psn(psn);
    packet.bth.ack_req = true;
    packet.atomic = eth;
    return make_frame(pair.a, pair.b, qb.number, packet);
  }
  std::deque<Frame> answers(std::span<const Frame> burst) {
    pair.deliver(pair.b, burst);
    return pair.collect(pair.b);
  }
  void expect_refused(const std::deque<Frame>& out, NakCode code, std::uint32_t psn) {
    ASSERT_EQ(out.size(), 1u);
    const wire::Packet nak = parse(out[0]);
    EXPECT_EQ(nak.bth.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(nak.aeth.syndrome, wire::make_nak_syndrome(code));
    EXPECT_EQ(nak.bth.psn, Psn(psn));
    EXPECT_EQ(pair.b.engine->query_qp(qb.number)->state, QpState::kErr);
  }
  std::uint32_t rkey() const { return pair.b.keys.rkey; }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
};

TEST_F(Responder, WholeRangeOfAWriteIsCheckedBeforeItsFirstByteIsPlaced) {
  connect();
  // The first packet alone would fit; the message does not.
  const wire::Reth reth{kBufferVa + kBufferBytes - kMtu, rkey(), 2 * kMtu};
  expect_refused(answers(std::array{request(Opcode::kRcWriteFirst, 100, reth, kMtu)}),
                 NakCode::kRemoteAccessError, 100);
  EXPECT_EQ(pair.b.buffer[kBufferBytes - kMtu], std::byte{0});
}

TEST_F(Responder, MessageLengthAboveTheLimitIsInvalid) {
  connect();
  const wire::Reth reth{kBufferVa, rkey(), (1u << 31) + 1};
  expect_refused(answers(std::array{request(Opcode::kRcWriteFirst, 100, reth, kMtu)}),
                 NakCode::kInvalidRequest, 100);
  connect();
  expect_refused(answers(std::array{request(Opcode::kRcReadRequest, 100, reth, 0)}),
                 NakCode::kInvalidRequest, 100);
}

TEST_F(Responder, EachRightOfTheQpIsAskedForByItself) {
  const wire::Reth reth{kBufferVa, rkey(), 8};
  connect({.mtu = kMtu, .access = kAllAccess & ~std::uint32_t{memory::kAccessRemoteAtomic}});
  expect_refused(answers(std::array{atomic(Opcode::kRcFetchAdd, 100, {kBufferVa, rkey(), 1, 0})}),
                 NakCode::kInvalidRequest, 100);
  connect({.mtu = kMtu, .access = kAllAccess & ~std::uint32_t{memory::kAccessRemoteRead}});
  expect_refused(answers(std::array{request(Opcode::kRcReadRequest, 100, reth, 0)}),
                 NakCode::kInvalidRequest, 100);
  connect({.mtu = kMtu, .access = kAllAccess & ~std::uint32_t{memory::kAccessRemoteWrite}});
  expect_refused(answers(std::array{request(Opcode::kRcWriteOnly, 100, reth, 8)}),
                 NakCode::kInvalidRequest, 100);
}

TEST_F(Responder, QpThatNegotiatedNoReadsExecutesNone) {
  connect({.mtu = kMtu, .rd_atomic = 0});
  const wire::Reth reth{kBufferVa, rkey(), 8};
  expect_refused(answers(std::array{request(Opcode::kRcReadRequest, 100, reth, 0)}),
                 NakCode::kInvalidRequest, 100);
  connect({.mtu = kMtu, .rd_atomic = 0});
  expect_refused(answers(std::array{atomic(Opcode::kRcFetchAdd, 100, {kBufferVa, rkey(), 1, 0})}),
                 NakCode::kInvalidRequest, 100);
}

TEST_F(Responder, AtomicSeesTheWriteBeforeItInTheSameBurst) {
  connect();
  const auto out = answers(std::array{
      request(Opcode::kRcWriteOnly, 100, {kBufferVa, rkey(), 8}, 8),
      atomic(Opcode::kRcFetchAdd, 101, {kBufferVa, rkey(), 1, 0}),
  });
  ASSERT_FALSE(out.empty());
  const wire::Packet result = parse(out.front());
  ASSERT_EQ(result.bth.opcode, Opcode::kRcAtomicAcknowledge);
  EXPECT_EQ(result.atomic_ack.original, 0x7777'7777'7777'7777u);
  EXPECT_EQ(load<std::uint64_t>(pair.b.buffer.data()), 0x7777'7777'7777'7778u);
}

// Memory that passes the checks and is not there: unmapped since it was registered.
memory::MrKeys add_unmapped(Host& host) {
  memory::MrAttr attr;
  attr.pd = PdId{1};
  attr.space = host.space;
  attr.iova = attr.client_va = kBufferVa + kBufferBytes;
  attr.length = 4096;
  attr.access = kAllAccess;
  return host.regions.add(attr).value();
}

TEST_F(Responder, NothingBehindAFailedRequestOfTheBurstIsAnswered) {
  connect();
  const auto gone = add_unmapped(pair.b);
  const auto out = answers(std::array{
      request(Opcode::kRcReadRequest, 100, {kBufferVa, rkey(), 4}, 0),
      request(Opcode::kRcWriteOnly, 101, {kBufferVa + kBufferBytes, gone.rkey, 8}, 8),
      request(Opcode::kRcReadRequest, 102, {kBufferVa, rkey(), 4}, 0),
  });
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(parse(out[0]).bth.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(parse(out[0]).bth.psn, Psn(100));
  EXPECT_EQ(parse(out[1]).aeth.syndrome, wire::make_nak_syndrome(NakCode::kRemoteOperationalError));
  EXPECT_EQ(parse(out[1]).bth.psn, Psn(101));
}

TEST_F(Responder, AtomicThatFaultedLeavesNoResultToReplay) {
  connect();
  const auto gone = add_unmapped(pair.b);
  expect_refused(answers(std::array{atomic(Opcode::kRcFetchAdd, 100,
                                           {kBufferVa + kBufferBytes, gone.rkey, 1, 0})}),
                 NakCode::kRemoteOperationalError, 100);
  EXPECT_EQ(pair.b.engine->counts().responder_resources, 0u);
}

TEST_F(Responder, CommunicationIsEstablishedOnce) {
  qa = pair.a.make_qp();
  qb = pair.b.make_qp();
  // The responder waits in RTR, as an application does that has not heard of its peer yet.
  bring_up(pair.b, qb.number, pair.a, qa.number, Psn(5000), Psn(100), {.mtu = kMtu}, pair.now,
           QpState::kRtr);
  const wire::Reth reth{kBufferVa, rkey(), 4};
  (void)answers(std::array{request(Opcode::kRcWriteOnly, 100, reth, 4),
                           request(Opcode::kRcWriteOnly, 101, reth, 4)});
  (void)answers(std::array{request(Opcode::kRcWriteOnly, 102, reth, 4)});
  ASSERT_EQ(pair.b.events.async.size(), 1u);
  EXPECT_EQ(pair.b.events.async[0].type, AsyncEventType::kCommEstablished);
}

}  // namespace
}  // namespace rocemu::engine::test
