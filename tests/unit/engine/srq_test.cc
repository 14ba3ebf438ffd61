// Shared receive queues: who takes what, what stays, limit and last-WQE events, faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint32_t kMtu = 1024;

// `a` sends over two connections to QPs of `b` that share a receive queue.
struct Srq : testing::Test {
  explicit Srq(const HostOptions& options = {}) : pair(options) {}

  void connect(PdId srq_pd = PdId{1}, PdId qp_pd = PdId{1}, const ConnectOptions& options = {}) {
    srq = pair.b.make_srq(127, srq_pd);
    for (int i = 0; i < 2; ++i) {
      qa[i] = pair.a.make_qp();
      qb[i] = pair.b.make_qp_on(srq, qp_pd);
      pair.connect(qa[i], qb[i], options);
    }
  }
  void post(std::uint64_t wr_id, std::uint32_t length = 4096) {
    pair.b.post_srq_recv(srq, std::array{pair.b.sge(wr_id * 8192, length)}, wr_id);
  }
  void send(int from, std::uint32_t length, std::uint64_t wr_id = 1) {
    pair.a.post_send(pair.now, qa[from], WrOpcode::kSend, std::array{pair.a.sge(0, length)},
                     {.wr_id = wr_id});
  }
  std::size_t events_of(AsyncEventType type) const {
    return static_cast<std::size_t>(
        std::ranges::count(pair.b.events.async, type, &AsyncEvent::type));
  }
  void to_error(const QpHandle& qp) {
    transport::QpAttr attr;
    attr.state = QpState::kErr;
    ASSERT_TRUE(pair.b.engine->modify_qp(pair.now, qp.number, attr, transport::kQpState).ok());
  }
  QpState state_of(Host& host, const QpHandle& qp) {
    return host.engine->query_qp(qp.number)->state;
  }

  Pair pair;
  SrqHandle srq;
  QpHandle qa[2];
  QpHandle qb[2];
};

TEST_F(Srq, MessagesOfAllQpsTakeFromOneQueueInOrderOfArrival) {
  connect();
  for (std::uint64_t i = 1; i <= 4; ++i) post(i);
  for (const int from : {1, 0, 0, 1}) {
    send(from, 64);
    ASSERT_TRUE(pair.run());
  }
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 4u);
  const std::uint32_t qps[] = {qb[1].number.value, qb[0].number.value, qb[0].number.value,
                               qb[1].number.value};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, WcStatus::kSuccess);
    EXPECT_EQ(done[i].qp, qps[i]);
    EXPECT_EQ(done[i].byte_length, 64u);
  }
}

TEST_F(Srq, AMessageKeepsWhatItTookAtItsFirstPacket) {
  connect({1}, {1}, {.mtu = kMtu});
  std::ranges::fill(std::span(pair.a.buffer).first(3 * kMtu), std::byte{0x5a});
  post(1);
  post(2);
  send(0, 3 * kMtu);
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 3u);
  pair.deliver(pair.b, std::array{frames[0]});
  // The place in the ring is free again, and the program writes over it.
  EXPECT_EQ(load<std::uint32_t>(pair.b.ring_bytes(srq.ring) + rxe::kQueueConsumerIndex), 1u);
  std::ranges::fill(std::span(pair.b.ring_bytes(srq.ring) + rxe::kQueueData, 256), std::byte{0xff});
  send(1, 100);
  pair.deliver(pair.b, std::vector<Frame>(1, pair.collect(pair.a).front()));
  pair.deliver(pair.b, std::array{frames[1], frames[2]});
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 2u);
  EXPECT_EQ(done[0].qp, qb[1].number.value);
  EXPECT_EQ(done[1].wr_id, 1u);
  EXPECT_EQ(done[1].byte_length, 3 * kMtu);
  EXPECT_TRUE(std::ranges::equal(std::span(pair.b.buffer).subspan(8192, 3 * kMtu),
                                 std::span(pair.a.buffer).first(3 * kMtu)));
  EXPECT_EQ(pair.b.counters.get(Counter::client_ring_errors), 0u);
}

TEST_F(Srq, SeveralMessagesOfOneBurstCompleteInOrder) {
  connect();
  for (std::uint64_t i = 1; i <= 8; ++i) post(i);
  for (std::uint64_t i = 1; i <= 8; ++i) send(0, 32, i);
  const auto frames = pair.collect(pair.a);
  pair.deliver(pair.b, std::vector<Frame>(frames.begin(), frames.end()));
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(done[i].wr_id, i + 1);
}

TEST_F(Srq, AWriteWithImmediateTakesOneAtItsEnd) {
  connect({1}, {1}, {.mtu = kMtu});
  post(9, 0);
  pair.a.post_send(pair.now, qa[0], WrOpcode::kRdmaWriteWithImm,
                   std::array{pair.a.sge(0, 2 * kMtu)},
                   {.immediate = 77, .rkey = pair.b.keys.rkey});
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 2u);
  pair.deliver(pair.b, std::array{frames[0]});
  EXPECT_EQ(load<std::uint32_t>(pair.b.ring_bytes(srq.ring) + rxe::kQueueConsumerIndex), 0u);
  pair.deliver(pair.b, std::array{frames[1]});
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].opcode, WcOpcode::kRecvRdmaWithImm);
  EXPECT_EQ(done[0].wr_id, 9u);
  EXPECT_EQ(done[0].immediate, 77u);
}

TEST_F(Srq, AnEmptyQueueMakesThePeerComeAgain) {
  connect();
  send(0, 64);
  ASSERT_TRUE(pair.run(pair.now + microseconds(10)));
  EXPECT_EQ(pair.b.counters.get(Counter::rnr_naks_sent), 1u);
  EXPECT_TRUE(pair.b.poll_all().empty());
  post(5);
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 5u);
}

TEST_F(Srq, TheLimitEventComesOnceAndDisarms) {
  connect();
  for (std::uint64_t i = 1; i <= 4; ++i) post(i);
  ASSERT_TRUE(pair.b.engine->set_srq_limit(srq.index, 3).ok());
  send(0, 8);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(events_of(AsyncEventType::kSrqLimitReached), 0u);  // 3 left: not below
  EXPECT_EQ(pair.b.engine->query_srq(srq.index)->limit, 3u);
  send(1, 8);
  send(1, 8);
  ASSERT_TRUE(pair.run());
  ASSERT_EQ(events_of(AsyncEventType::kSrqLimitReached), 1u);
  EXPECT_EQ(pair.b.events.async.back().srq, srq.index);
  EXPECT_EQ(pair.b.engine->query_srq(srq.index)->limit, 0u);
}

TEST_F(Srq, ALimitAboveWhatIsPostedIsReachedAtOnce) {
  connect();
  post(1);
  ASSERT_TRUE(pair.b.engine->set_srq_limit(srq.index, 1).ok());
  EXPECT_EQ(events_of(AsyncEventType::kSrqLimitReached), 0u);
  ASSERT_TRUE(pair.b.engine->set_srq_limit(srq.index, 2).ok());
  EXPECT_EQ(events_of(AsyncEventType::kSrqLimitReached), 1u);
}

TEST_F(Srq, AQpInErrorFlushesWhatItTookAndLeavesTheRest) {
  connect({1}, {1}, {.mtu = kMtu});
  post(1);
  post(2);
  send(0, 2 * kMtu);
  pair.deliver(pair.b, std::array{pair.collect(pair.a).front()});
  to_error(qb[0]);
  auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(done[0].qp, qb[0].number.value);
  ASSERT_EQ(events_of(AsyncEventType::kQpLastWqeReached), 1u);
  EXPECT_EQ(pair.b.events.async.back().qp, qb[0].number);
  to_error(qb[0]);
  EXPECT_EQ(events_of(AsyncEventType::kQpLastWqeReached), 1u);

  send(1, 16);
  pair.deliver(pair.b, std::array{pair.collect(pair.a).front()});
  done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
}

TEST_F(Srq, AQpThatTookNothingHasItsLastWqeEventToo) {
  connect();
  to_error(qb[1]);
  EXPECT_EQ(events_of(AsyncEventType::kQpLastWqeReached), 1u);
}

TEST_F(Srq, AfterResetTheLastWqeEventMayComeAgain) {
  connect();
  to_error(qb[1]);
  transport::QpAttr attr;
  ASSERT_TRUE(pair.b.engine->modify_qp(pair.now, qb[1].number, attr, transport::kQpState).ok());
  to_error(qb[1]);
  EXPECT_EQ(events_of(AsyncEventType::kQpLastWqeReached), 2u);
}

TEST_F(Srq, ResetAndDestroyForgetWhatWasTaken) {
  connect({1}, {1}, {.mtu = kMtu});
  post(1);
  post(2);
  for (int i = 0; i < 2; ++i) {
    send(i, 2 * kMtu);
    pair.deliver(pair.b, std::array{pair.collect(pair.a).front()});
  }
  transport::QpAttr attr;
  ASSERT_TRUE(pair.b.engine->modify_qp(pair.now, qb[0].number, attr, transport::kQpState).ok());
  ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb[1].number).ok());
  EXPECT_TRUE(pair.b.poll_all().empty());
  EXPECT_EQ(pair.b.engine->counts().taken_receives, 0u);
}

TEST_F(Srq, AReceiveThatIsTooSmallIsALengthErrorAtBothEnds) {
  connect();
  post(1, 10);
  post(2);
  send(0, 11);
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocLenErr);
  const auto sent = pair.a.poll_all();
  ASSERT_GE(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, WcStatus::kRemInvReqErr);
  EXPECT_EQ(events_of(AsyncEventType::kQpLastWqeReached), 1u);
}

TEST_F(Srq, MemoryThatFailsEndsItsReceiveAndFlushesTheOnesBehind) {
  connect();
  memory::MrAttr attr;  // where the address space has nothing
  attr.pd = PdId{1};
  attr.space = pair.b.space;
  attr.iova = attr.client_va = kBufferVa + kBufferBytes;
  attr.length = 64;
  attr.access = kAllAccess;
  const auto keys = pair.b.regions.add(attr).value();
  pair.b.post_srq_recv(srq, std::array{transport::Sge{attr.iova, 64, keys.lkey}}, 1);
  post(2);
  send(0, 64, 1);
  send(0, 64, 2);
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 2u);
  pair.deliver(pair.b, std::vector<Frame>(frames.begin(), frames.end()));
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].wr_id, 2u);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

TEST_F(Srq, ReceivesNameMemoryOfTheSrqsDomain) {
  connect(PdId{1}, PdId{2});  // the memory is of domain 1
  post(1);
  send(0, 64);
  ASSERT_TRUE(pair.run());
  auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);

  connect(PdId{2}, PdId{1});
  post(2);
  send(0, 64);
  ASSERT_TRUE(pair.run());
  done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
}

TEST_F(Srq, NonsenseInTheRingFailsTheQueueForAll) {
  connect({1}, {1}, {.rnr_retry = 1});
  post(1);
  post(2);
  store(pair.b.ring_bytes(srq.ring) + rxe::kQueueData + rxe::kRecvDma + rxe::kDmaNumSge,
        std::uint32_t{33});
  send(0, 64);
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[0].status, WcStatus::kLocQpOpErr);
  ASSERT_EQ(events_of(AsyncEventType::kSrqError), 1u);
  EXPECT_TRUE(pair.b.engine->query_srq(srq.index)->has_failed);
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRemOpErr);

  send(1, 64);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRnrRetryExcErr);
  EXPECT_TRUE(pair.b.poll_all().empty());
}

TEST_F(Srq, IsBusyWhileQueuePairsUseIt) {
  connect();
  EXPECT_EQ(pair.b.engine->destroy_srq(srq.index).error().code, EBUSY);
  for (const QpHandle& qp : qb) ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qp.number).ok());
  EXPECT_TRUE(pair.b.engine->destroy_srq(srq.index).ok());
  EXPECT_EQ(pair.b.engine->destroy_srq(srq.index).error().code, EINVAL);
  EXPECT_EQ(pair.b.engine->query_srq(srq.index).error().code, EINVAL);
  EXPECT_EQ(pair.b.engine->set_srq_limit(srq.index, 1).error().code, EINVAL);
  EXPECT_EQ(pair.b.engine->resize_srq(srq.index, srq.ring).error().code, EINVAL);
}

TEST_F(Srq, AQpHasEitherAQueueOfItsOwnOrAShared) {
  connect();
  transport::QpInit init;
  init.context = ContextId{1};
  init.pd = PdId{1};
  init.send_cq = init.recv_cq = pair.b.cq;
  init.send_ring = qb[0].send_ring;
  EXPECT_EQ(pair.b.engine->create_qp(init).error().code, EINVAL);
  init.srq = srq.index;
  init.recv_ring = srq.ring;
  EXPECT_EQ(pair.b.engine->create_qp(init).error().code, EINVAL);
  init.recv_ring = {};
  init.srq = SrqIndex{15};
  EXPECT_EQ(pair.b.engine->create_qp(init).error().code, EINVAL);
}

TEST_F(Srq, TheDeviceHasALimitedNumber) {
  std::size_t made = 0;
  while (pair.b.engine->create_srq({ContextId{1}, PdId{1}, pair.b.cq_ring, 1}).ok()) ++made;
  EXPECT_EQ(made, 16u);
  EXPECT_EQ(pair.b.engine->create_srq({ContextId{1}, PdId{1}, pair.b.cq_ring, 1}).error().code,
            ENOMEM);
}

HostOptions one_message_under_way() {
  HostOptions options;
  options.engine.limits.max_taken_receives = 1;
  return options;
}

struct SrqWithoutRoom : Srq {
  SrqWithoutRoom() : Srq(one_message_under_way()) {}
};

TEST_F(SrqWithoutRoom, MoreMessagesUnderWayThanThereIsRoomForWait) {
  connect({1}, {1}, {.mtu = kMtu});
  post(1);
  post(2);
  send(0, 2 * kMtu);
  const auto frames = pair.collect(pair.a);
  pair.deliver(pair.b, std::array{frames[0]});
  send(1, 16);
  ASSERT_TRUE(pair.run(pair.now + microseconds(10)));
  EXPECT_EQ(pair.b.counters.get(Counter::rnr_naks_sent), 1u);
  pair.deliver(pair.b, std::array{frames[1]});
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wr_id, 1u);
  EXPECT_EQ(done[1].wr_id, 2u);
}

}  // namespace
}  // namespace rocemu::engine::test
