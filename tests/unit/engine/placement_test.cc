// FLUSH and ATOMIC WRITE (annex A19) from ring to ring: what they need, when they are executed, how
// they are answered and answered again, and the statuses of their faults.
#include <gtest/gtest.h>

#include "dataplane/wire/packet.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::QpState;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint8_t kGlobal = 1, kPersistent = 2;
constexpr std::uint8_t kRange = 0, kRegion = 1;
constexpr std::uint32_t kFlushAccess = memory::kAccessFlushGlobal | memory::kAccessFlushPersistent;

struct Placement : testing::Test {
  void connect(const ConnectOptions& options = {.access = kAllAccess | kFlushAccess}) {
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, options);
    memory::MrAttr attr = pair.b.regions.attr(pair.b.keys.index);
    attr.access = kAllAccess | kFlushAccess;
    region = pair.b.regions.add(attr).value();
  }
  SendOptions flush_request(std::uint8_t type = kGlobal, std::uint8_t level = kRange,
                            std::uint32_t length = 100) const {
    SendOptions options;
    options.wr_id = 5;
    options.rkey = region.rkey;
    options.flush = {.length = length, .type = type, .level = level};
    return options;
  }
  SendOptions to_region(std::uint64_t offset = 0) const {
    SendOptions options;
    options.rkey = region.rkey;
    options.remote_va = kBufferVa + offset;
    return options;
  }
  void post_atomic_write(std::uint64_t value, const SendOptions& options) {
    std::array<std::byte, 8> bytes;
    store(bytes.data(), value);
    // As librxe's wr_atomic_write: the operand in the ring, without the inline flag.
    pair.a.post_operand(pair.now, qa, WrOpcode::kAtomicWrite, bytes, options);
  }
  Wc run_one() {
    EXPECT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    EXPECT_GE(done.size(), 1u);
    return done.empty() ? Wc{} : done[0];
  }
  WcStatus flush(const SendOptions& options) {
    pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, options);
    return run_one().status;
  }
  std::uint64_t word(std::size_t offset) const {
    return load<std::uint64_t>(pair.b.buffer.data() + offset);
  }
  QpState state_of(Host& host, QpNum qp) { return host.engine->query_qp(qp)->state; }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
  memory::MrKeys region;
};

TEST_F(Placement, FlushesOfEveryTypeAndLevelSucceed) {
  connect();
  for (const std::uint8_t type : {kGlobal, kPersistent, std::uint8_t{kGlobal | kPersistent}}) {
    for (const std::uint8_t level : {kRange, kRegion}) {
      pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, flush_request(type, level));
      const Wc wc = run_one();
      EXPECT_EQ(wc.status, WcStatus::kSuccess);
      EXPECT_EQ(wc.opcode, WcOpcode::kFlush);
      EXPECT_EQ(wc.wr_id, 5u);
    }
  }
  EXPECT_EQ(pair.b.counters.get(Counter::rx_flush_requests), 6u);
}

TEST_F(Placement, FlushOnTheWireIsFethAndRethAnsweredByAReadResponseWithoutBytes) {
  connect();
  pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, flush_request(kGlobal, kRegion, 77));
  const auto requests = pair.collect(pair.a);
  ASSERT_EQ(requests.size(), 1u);
  const wire::Packet request = parse(requests[0]);
  EXPECT_EQ(request.bth.opcode, wire::Opcode::kRcFlush);
  EXPECT_EQ(request.feth.placement_type, kGlobal);
  EXPECT_EQ(request.feth.selectivity_level, kRegion);
  EXPECT_EQ(request.reth.dma_length, 77u);
  EXPECT_EQ(request.reth.rkey, region.rkey);
  EXPECT_TRUE(request.payload.empty());
  pair.deliver(pair.b, {&requests[0], 1});
  const auto responses = pair.collect(pair.b);
  ASSERT_EQ(responses.size(), 1u);
  const wire::Packet response = parse(responses[0]);
  EXPECT_EQ(response.bth.opcode, wire::Opcode::kRcReadResponseOnly);
  EXPECT_EQ(response.bth.psn, request.bth.psn);
  EXPECT_EQ(response.aeth.msn, 1u);
  EXPECT_TRUE(response.payload.empty());
}

TEST_F(Placement, FlushedBytesAreThereWhenTheFlushIsAnswered) {
  connect();
  std::fill_n(pair.a.buffer.begin(), 5000, std::byte{0x33});
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 5000)},
                   to_region());
  pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, flush_request(kGlobal, kRange, 5000));
  const auto frames = pair.collect(pair.a);
  std::vector<Frame> burst(frames.begin(), frames.end());
  pair.deliver(pair.b, burst);
  EXPECT_EQ(pair.b.buffer[4999], std::byte{0x33});
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 2u);
}

TEST_F(Placement, RangesAndKeysOfAFlush) {
  const auto status = [&](auto&& change) {
    connect();
    SendOptions options = flush_request();
    change(options);
    return flush(options);
  };
  EXPECT_EQ(status([](SendOptions& o) { o.rkey ^= 1; }), WcStatus::kRemAccessErr);
  EXPECT_EQ(status([](SendOptions& o) { o.remote_va -= 1; }), WcStatus::kRemAccessErr);
  EXPECT_EQ(status([](SendOptions& o) { o.flush.length = kBufferBytes + 1; }),
            WcStatus::kRemAccessErr);
  // No bytes, but a key (other than C9-88 for READ and WRITE).
  EXPECT_EQ(status([](SendOptions& o) { o.flush.length = 0; }), WcStatus::kSuccess);
  EXPECT_EQ(status([](SendOptions& o) { o.flush.length = 0, o.rkey ^= 1; }),
            WcStatus::kRemAccessErr);
  // At region level the range means nothing.
  EXPECT_EQ(status([](SendOptions& o) { o.remote_va = 1, o.flush.level = kRegion; }),
            WcStatus::kSuccess);
  // A region without the right.
  EXPECT_EQ(status([&](SendOptions& o) { o.rkey = pair.b.keys.rkey; }), WcStatus::kRemAccessErr);
  EXPECT_EQ(state_of(pair.b, qb.number), QpState::kErr);
}

TEST_F(Placement, TypesAndLevelsThatDoNotExistAreInvalid) {
  for (const unsigned type : {0u, 4u, 8u, 7u}) {
    connect();
    EXPECT_EQ(flush(flush_request(static_cast<std::uint8_t>(type))), WcStatus::kRemInvReqErr);
  }
  for (const unsigned level : {2u, 3u}) {
    connect();
    EXPECT_EQ(flush(flush_request(kGlobal, static_cast<std::uint8_t>(level))),
              WcStatus::kRemInvReqErr);
  }
  connect({.access = kAllAccess | memory::kAccessFlushGlobal});
  EXPECT_EQ(flush(flush_request(kGlobal)), WcStatus::kSuccess);
  EXPECT_EQ(flush(flush_request(kPersistent)), WcStatus::kRemInvReqErr);
}

TEST_F(Placement, FlushThatCarriesBytesOrNeedsAQpWithoutResourcesIsNotSent) {
  connect();
  pair.a.post_send(pair.now, qa, WrOpcode::kFlush, std::array{pair.a.sge(0, 8)}, flush_request());
  EXPECT_EQ(run_one().status, WcStatus::kLocQpOpErr);
  connect({.rd_atomic = 0, .access = kAllAccess | kFlushAccess});
  EXPECT_EQ(flush(flush_request()), WcStatus::kLocQpOpErr);
  EXPECT_EQ(pair.a_frames, 0u);
}

TEST_F(Placement, AtomicWriteStoresItsWordOnceAndInOrder) {
  connect();
  post_atomic_write(0x1122'3344'5566'7788, to_region(64));
  const Wc wc = run_one();
  EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_EQ(wc.opcode, WcOpcode::kAtomicWrite);
  EXPECT_EQ(word(64), 0x1122'3344'5566'7788u);
  // From an SGE, behind a WRITE to the same place.
  store<std::uint64_t>(pair.a.buffer.data(), 7);
  std::fill_n(pair.a.buffer.begin() + 100, 200, std::byte{0xee});
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(100, 200)},
                   to_region(0));
  pair.a.post_send(pair.now, qa, WrOpcode::kAtomicWrite, std::array{pair.a.sge(0, 8)},
                   to_region(64));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().size(), 2u);
  EXPECT_EQ(word(64), 7u);
  EXPECT_EQ(word(72), 0xeeee'eeee'eeee'eeeeu);
  EXPECT_EQ(pair.b.engine->counts().responder_resources, 2u);
}

TEST_F(Placement, LostResponsesAreSentAgainAndNothingIsExecutedTwice) {
  connect();
  // The first response is lost; the word changes meanwhile, and stays changed.
  pair.b_to_a = [this](std::size_t n) {
    if (n != 0) return Fate::kDeliver;
    store<std::uint64_t>(pair.b.buffer.data() + 64, 99);
    return Fate::kDrop;
  };
  post_atomic_write(5, to_region(64));
  EXPECT_EQ(run_one().status, WcStatus::kSuccess);
  EXPECT_EQ(word(64), 99u);
  EXPECT_EQ(pair.b.counters.get(Counter::duplicate_request), 1u);
  connect();
  pair.b_frames = 0;
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDrop : Fate::kDeliver; };
  EXPECT_EQ(flush(flush_request()), WcStatus::kSuccess);
  EXPECT_EQ(pair.b.counters.get(Counter::duplicate_request), 2u);
}

TEST_F(Placement, RandomLossChangesNothingOfOrderAndContent) {
  connect({.mtu = 256, .access = kAllAccess | kFlushAccess});
  Prng draw(5);
  const auto lossy = [&draw](std::size_t) {
    return draw.below(8) == 0 ? Fate::kDrop : Fate::kDeliver;
  };
  pair.a_to_b = pair.b_to_a = lossy;
  for (std::uint64_t i = 0; i < 60; ++i) {
    SendOptions options = to_region(4096);
    options.wr_id = 3 * i;
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 700)}, options);
    SendOptions range = flush_request(kGlobal, kRange, 700);
    range.wr_id = 3 * i + 1;
    pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, range);
    options = to_region(64);
    options.wr_id = 3 * i + 2;
    post_atomic_write(i, options);
    if (i % 20 != 19) continue;
    ASSERT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), 60u);
    for (std::size_t n = 0; n < done.size(); ++n) {
      EXPECT_EQ(done[n].status, WcStatus::kSuccess);
      EXPECT_EQ(done[n].wr_id, 3 * (i - 19) + n);
    }
    EXPECT_EQ(word(64), i);
  }
}

TEST_F(Placement, AtomicWritesThatCannotBeAreRefused) {
  const auto status = [&](auto&& change, const ConnectOptions& with = {}) {
    connect(with);
    SendOptions options = to_region(64);
    change(options);
    post_atomic_write(1, options);
    return run_one().status;
  };
  EXPECT_EQ(status([](SendOptions& o) { o.remote_va += 4; }), WcStatus::kRemInvReqErr);
  EXPECT_EQ(status([](SendOptions& o) { o.rkey ^= 1; }), WcStatus::kRemAccessErr);
  EXPECT_EQ(status([](SendOptions& o) { o.remote_va = kBufferVa + kBufferBytes; }),
            WcStatus::kRemAccessErr);
  EXPECT_EQ(status([](SendOptions&) {}, {.access = memory::kAccessLocalWrite}),
            WcStatus::kRemInvReqErr);
  EXPECT_EQ(word(64), 0u);
  pair.a_frames = 0;
  EXPECT_EQ(status([](SendOptions&) {}, {.rd_atomic = 0}), WcStatus::kLocQpOpErr);
  connect();
  pair.a.post_send(pair.now, qa, WrOpcode::kAtomicWrite, std::array{pair.a.sge(0, 16)},
                   to_region(64));
  EXPECT_EQ(run_one().status, WcStatus::kLocLenErr);
  EXPECT_EQ(pair.a_frames, 0u);
}

// Whoever says another length in the RETH than the packet has is refused.
TEST_F(Placement, AtomicWriteWhoseRethSaysAnotherLengthIsInvalid) {
  connect();
  wire::Packet packet;
  packet.bth.opcode = wire::Opcode::kRcAtomicWrite;
  packet.bth.psn = Psn(100);
  packet.reth = {kBufferVa, region.rkey, 16};
  const std::array<std::byte, 8> word_of_ones = {};
  const Frame frame = make_frame(pair.a, pair.b, qb.number, packet, word_of_ones);
  pair.deliver(pair.b, {&frame, 1});
  const auto responses = pair.collect(pair.b);
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(parse(responses[0]).aeth.syndrome, 0x61);
}

// Work requests of every kind with operands at random: each ends with a status, and the neighbours
// on the same devices see nothing of it.
TEST_F(Placement, OperandsAtRandomEndWithAStatusAndHarmNobodyElse) {
  constexpr std::array kKinds = {WrOpcode::kFlush,    WrOpcode::kAtomicWrite, WrOpcode::kBindMw,
                                 WrOpcode::kLocalInv, WrOpcode::kSendWithInv, WrOpcode::kRdmaWrite,
                                 WrOpcode::kRdmaRead};
  connect();
  QpHandle good_a = pair.a.make_qp();
  QpHandle good_b = pair.b.make_qp();
  pair.connect(good_a, good_b);
  Prng draw(23);
  const auto maybe = [&draw](std::uint64_t honest) {
    return draw.below(3) == 0 ? draw.next() : honest;
  };
  for (int round = 0; round < 400; ++round) {
    SendOptions options = flush_request();
    options.flags |= static_cast<std::uint32_t>(draw.below(16));
    options.remote_va = maybe(kBufferVa);
    options.rkey = static_cast<std::uint32_t>(maybe(region.rkey));
    options.invalidate_rkey = static_cast<std::uint32_t>(draw.next());
    options.flush = {.length = static_cast<std::uint32_t>(maybe(64)),
                     .type = static_cast<std::uint8_t>(maybe(kGlobal)),
                     .level = static_cast<std::uint8_t>(maybe(kRange))};
    const WrOpcode kind = kKinds[draw.below(kKinds.size())];
    transport::Sge sge = pair.a.sge(0, static_cast<std::uint32_t>(draw.below(64)));
    sge.va = maybe(sge.va);
    pair.b.post_recv(qb, std::array{pair.b.sge(4096, 64)}, 1);
    pair.a.post_send(pair.now, qa, kind, std::span(&sge, draw.below(2)), options);
    ASSERT_TRUE(pair.run(pair.now + seconds(20)));
    ASSERT_EQ(pair.a.poll_all().size(), 1u);
    pair.b.poll_all();
    pair.a.post_send(pair.now, good_a, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, 100)},
                     to_region());
    ASSERT_TRUE(pair.run(pair.now + seconds(20)));
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), 1u);
    ASSERT_EQ(done[0].status, WcStatus::kSuccess);
    ASSERT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
    ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb.number).ok());
    qa = pair.a.make_qp(1);
    qb = pair.b.make_qp(1);
    pair.connect(qa, qb, {.access = kAllAccess | kFlushAccess});
  }
}

TEST_F(Placement, ResponseWithBytesOrOfAnotherKindIsABadResponse) {
  for (const wire::Opcode opcode :
       {wire::Opcode::kRcReadResponseOnly, wire::Opcode::kRcAtomicAcknowledge}) {
    connect();
    pair.a.post_send(pair.now, qa, WrOpcode::kFlush, {}, flush_request());
    ASSERT_EQ(pair.collect(pair.a).size(), 1u);
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = Psn(100);
    packet.aeth = {0x1f, 1};
    const std::array<std::byte, 4> bytes = {};
    const bool is_read = opcode == wire::Opcode::kRcReadResponseOnly;
    const Frame frame =
        make_frame(pair.b, pair.a, qa.number, packet,
                   is_read ? std::span<const std::byte>(bytes) : std::span<const std::byte>());
    pair.deliver(pair.a, {&frame, 1});
    EXPECT_EQ(run_one().status, WcStatus::kBadRespErr);
  }
}

}  // namespace
}  // namespace rocemu::engine::test
