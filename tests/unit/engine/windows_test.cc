// Operations on memory objects over the wire: windows bound and used, SEND with invalidate, local
// invalidate; their order among other requests, the statuses of their faults, and hostile rings.
#include <gtest/gtest.h>

#include "dataplane/wire/packet.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using memory::WindowType;
using transport::QpState;
using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint64_t kWindowOffset = 4096;
constexpr std::uint32_t kWindowBytes = 8192;

struct WindowOps : testing::Test {
  explicit WindowOps(const HostOptions& options = {}) : pair(options) {}

  void connect(const ConnectOptions& options = {}) {
    qa = pair.a.make_qp();
    qb = pair.b.make_qp();
    pair.connect(qa, qb, options);
    memory::MrAttr attr = pair.b.regions.attr(pair.b.keys.index);
    attr.access = memory::kAccessLocalWrite | memory::kAccessMwBind;
    region = pair.b.regions.add(attr).value();
  }
  memory::MrKeys add_window(WindowType type) {
    return pair.b.regions.add_window(PdId{1}, type).value();
  }
  SendOptions bind_request(std::uint32_t window_rkey, std::uint64_t wr_id = 50) const {
    SendOptions options;
    options.wr_id = wr_id;
    options.bind = {.window_rkey = window_rkey,
                    .new_rkey = window_rkey + 1,
                    .region_lkey = region.lkey,
                    .va = kBufferVa + kWindowOffset,
                    .length = kWindowBytes,
                    .access = memory::kAccessRemoteRead | memory::kAccessRemoteWrite |
                              memory::kAccessRemoteAtomic};
    return options;
  }
  // The rkey that such a bind gives.
  static std::uint32_t bound(std::uint32_t rkey) { return (rkey & ~0xffu) | ((rkey + 1) & 0xff); }

  // Binds a window at b and returns its new rkey.
  std::uint32_t bind(WindowType type) {
    const memory::MrKeys window = add_window(type);
    pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, bind_request(window.rkey));
    EXPECT_TRUE(pair.run());
    const auto done = pair.b.poll_all();
    EXPECT_EQ(done.size(), 1u);
    EXPECT_EQ(done.at(0).status, WcStatus::kSuccess);
    EXPECT_EQ(done.at(0).opcode, WcOpcode::kBindMw);
    EXPECT_EQ(done.at(0).wr_id, 50u);
    return bound(window.rkey);
  }
  SendOptions to_window(std::uint32_t rkey) const {
    SendOptions options;
    options.remote_va = kBufferVa + kWindowOffset;
    options.rkey = rkey;
    return options;
  }
  WcStatus write(std::uint32_t rkey, std::uint32_t bytes = kWindowBytes) {
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, bytes)},
                     to_window(rkey));
    EXPECT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    return done.empty() ? WcStatus::kGeneralErr : done[0].status;
  }
  SendOptions invalidate(std::uint32_t rkey) const {
    SendOptions options;
    options.invalidate_rkey = rkey;
    return options;
  }
  QpState state_of(Host& host, QpNum qp) { return host.engine->query_qp(qp)->state; }

  Pair pair;
  QpHandle qa;
  QpHandle qb;
  memory::MrKeys region;
};

TEST_F(WindowOps, BoundWindowsTakeWritesReadsAndAtomics) {
  for (const WindowType type : {WindowType::kType1, WindowType::kType2}) {
    connect();
    const std::uint32_t rkey = bind(type);
    for (std::size_t i = 0; i < kWindowBytes; ++i) {
      pair.a.buffer[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(type));
    }
    EXPECT_EQ(write(rkey), WcStatus::kSuccess);
    EXPECT_TRUE(std::equal(pair.a.buffer.begin(), pair.a.buffer.begin() + kWindowBytes,
                           pair.b.buffer.begin() + kWindowOffset));
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead,
                     std::array{pair.a.sge(100'000, kWindowBytes)}, to_window(rkey));
    SendOptions add = to_window(rkey);
    add.compare_add = 5;
    pair.a.post_send(pair.now, qa, WrOpcode::kAtomicFetchAndAdd, std::array{pair.a.sge(0, 8)}, add);
    ASSERT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), 2u);
    for (const Wc& wc : done) EXPECT_EQ(wc.status, WcStatus::kSuccess);
    EXPECT_TRUE(std::equal(pair.a.buffer.begin() + 8, pair.a.buffer.begin() + kWindowBytes,
                           pair.a.buffer.begin() + 100'008));
    EXPECT_EQ(load<std::uint64_t>(pair.b.buffer.data() + kWindowOffset),
              load<std::uint64_t>(pair.a.buffer.data()) + 5);
  }
}

TEST_F(WindowOps, BytesOutsideTheWindowAreARemoteAccessError) {
  connect();
  EXPECT_EQ(write(bind(WindowType::kType2), kWindowBytes + 1), WcStatus::kRemAccessErr);
  EXPECT_EQ(pair.b.counters.get(Counter::key_violations), 1u);
}

TEST_F(WindowOps, RemoteRightThatTheQpDoesNotHaveIsInvalidWhateverTheWindowAllows) {
  connect({.access = memory::kAccessLocalWrite});
  EXPECT_EQ(write(bind(WindowType::kType2)), WcStatus::kRemInvReqErr);
}

TEST_F(WindowOps, AtomicOnAWordThatIsMisalignedInMemoryIsInvalid) {
  connect();
  const memory::MrKeys window = add_window(WindowType::kType2);
  SendOptions bind = bind_request(window.rkey);
  bind.bind.va += 4;
  bind.bind.access |= memory::kAccessZeroBased;
  pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, bind);
  ASSERT_TRUE(pair.run());
  SendOptions add = to_window(bound(window.rkey));
  add.remote_va = 0;
  pair.a.post_send(pair.now, qa, WrOpcode::kAtomicFetchAndAdd, std::array{pair.a.sge(0, 8)}, add);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRemInvReqErr);
}

TEST_F(WindowOps, WindowOfTypeTwoServesItsQpOnly) {
  connect();
  const std::uint32_t rkey = bind(WindowType::kType2);
  connect();
  EXPECT_EQ(write(rkey), WcStatus::kRemAccessErr);
}

TEST_F(WindowOps, ZeroLengthNamesNoMemoryButNeedsTheRightOfTheQp) {
  // C9-88: the key of a request without bytes is not looked at.
  connect();
  EXPECT_EQ(write(0xdead'beef, 0), WcStatus::kSuccess);
  connect({.access = memory::kAccessLocalWrite});
  EXPECT_EQ(write(region.rkey, 0), WcStatus::kRemInvReqErr);
}

TEST_F(WindowOps, LocalInvalidateEndsTheWindow) {
  connect();
  const std::uint32_t rkey = bind(WindowType::kType2);
  EXPECT_EQ(write(rkey), WcStatus::kSuccess);
  pair.b.post_send(pair.now, qb, WrOpcode::kLocalInv, {}, invalidate(rkey));
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].opcode, WcOpcode::kLocalInv);
  EXPECT_EQ(write(rkey), WcStatus::kRemAccessErr);
}

TEST_F(WindowOps, SendWithInvalidateEndsTheWindowAndSaysWhichInTheReceive) {
  for (const std::uint32_t bytes : {0u, 100u, 5000u}) {
    connect();
    const std::uint32_t rkey = bind(WindowType::kType2);
    pair.b.post_recv(qb, std::array{pair.b.sge(200'000, 5000)}, 77);
    pair.a.buffer[0] = std::byte{0x42};
    SendOptions send = invalidate(rkey);
    pair.a.post_send(pair.now, qa, WrOpcode::kSendWithInv, std::array{pair.a.sge(0, bytes)}, send);
    ASSERT_TRUE(pair.run());
    EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
    const auto received = pair.b.poll_all();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_EQ(received[0].opcode, WcOpcode::kRecv);
    EXPECT_EQ(received[0].byte_length, bytes);
    EXPECT_EQ(received[0].flags, transport::kWcWithInv);
    EXPECT_EQ(received[0].invalidated_rkey, rkey);
    if (bytes != 0) {
      EXPECT_EQ(pair.b.buffer[200'000], std::byte{0x42});
    }
    EXPECT_EQ(write(rkey), WcStatus::kRemAccessErr);
  }
}

TEST_F(WindowOps, SendThatInvalidatesNothingIsRefusedAndItsReceiveSaysSo) {
  connect();
  for (const std::uint32_t key : {region.rkey, 0x1234'5678u, bind(WindowType::kType1)}) {
    pair.b.post_recv(qb, std::array{pair.b.sge(200'000, 100)}, 77);
    pair.a.post_send(pair.now, qa, WrOpcode::kSendWithInv, std::array{pair.a.sge(0, 10)},
                     invalidate(key));
    ASSERT_TRUE(pair.run());
    EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRemAccessErr);
    const auto received = pair.b.poll_all();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].status, WcStatus::kRemInvReqErr);
    EXPECT_EQ(state_of(pair.b, qb.number), QpState::kErr);
    connect();
  }
}

TEST_F(WindowOps, DuplicateOfASendWithInvalidateInvalidatesOnce) {
  connect();
  const std::uint32_t rkey = bind(WindowType::kType2);
  pair.b.post_recv(qb, std::array{pair.b.sge(200'000, 100)}, 77);
  pair.a_to_b = [](std::size_t) { return Fate::kDuplicate; };
  pair.a.post_send(pair.now, qa, WrOpcode::kSendWithInv, std::array{pair.a.sge(0, 10)},
                   invalidate(rkey));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kSuccess);
  EXPECT_EQ(pair.b.poll_all().size(), 1u);
  EXPECT_EQ(state_of(pair.b, qb.number), QpState::kRts);
}

// The rest of a message that comes after its key was invalidated places nothing.
TEST_F(WindowOps, InvalidateInTheMiddleOfAWriteStopsIt) {
  connect({.mtu = 1024});
  const std::uint32_t rkey = bind(WindowType::kType2);
  std::fill_n(pair.a.buffer.begin(), kWindowBytes, std::byte{0x11});
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(0, kWindowBytes)},
                   to_window(rkey));
  const auto frames = pair.collect(pair.a);
  ASSERT_EQ(frames.size(), 8u);
  for (int i = 0; i < 4; ++i) pair.deliver(pair.b, {&frames[static_cast<std::size_t>(i)], 1});
  pair.b.post_send(pair.now, qb, WrOpcode::kLocalInv, {}, invalidate(rkey));
  while (pair.b.engine->poll_transmit(pair.now, pair.b.sink, 8) != 0) {
  }
  EXPECT_EQ(pair.b.poll_all().at(0).status, WcStatus::kSuccess);
  for (std::size_t i = 4; i < 8; ++i) pair.deliver(pair.b, {&frames[i], 1});
  EXPECT_EQ(pair.b.buffer[kWindowOffset + 4095], std::byte{0x11});
  EXPECT_EQ(pair.b.buffer[kWindowOffset + 4096], std::byte{0});
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRemAccessErr);
}

TEST_F(WindowOps, InvalidateInTheMiddleOfAReadsResponsesStopsThem) {
  connect({.mtu = 1024});
  const std::uint32_t rkey = bind(WindowType::kType2);
  pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(0, kWindowBytes)},
                   to_window(rkey));
  for (const Frame& frame : pair.collect(pair.a)) pair.deliver(pair.b, {&frame, 1});
  EXPECT_EQ(pair.b.engine->poll_transmit(pair.now, pair.b.sink, 3), 3u);
  ASSERT_TRUE(pair.b.regions.invalidate(rkey, {PdId{1}, qb.number}));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.a.poll_all().at(0).status, WcStatus::kRemAccessErr);
}

TEST_F(WindowOps, LocalOperationsCompleteInPostingOrder) {
  connect();
  const memory::MrKeys window = add_window(WindowType::kType2);
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDrop : Fate::kDeliver; };
  SendOptions write;
  write.rkey = pair.a.keys.rkey;
  write.wr_id = 1;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaWrite, std::array{pair.b.sge(0, 3000)}, write);
  pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, bind_request(window.rkey, 2));
  write.wr_id = 3;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaRead, std::array{pair.b.sge(0, 3000)}, write);
  SendOptions inv = invalidate(bound(window.rkey));
  inv.wr_id = 4;
  pair.b.post_send(pair.now, qb, WrOpcode::kLocalInv, {}, inv);
  write.wr_id = 5;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaWrite, std::array{pair.b.sge(0, 10)}, write);
  pair.turn();
  // Bound at its turn, not completed before what was posted first.
  EXPECT_TRUE(pair.b.regions.has_windows(region.index));
  EXPECT_TRUE(pair.b.poll_all().empty());
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, WcStatus::kSuccess);
  }
  EXPECT_FALSE(pair.b.regions.has_windows(region.index));
  EXPECT_EQ(pair.b.engine->counts().inflight_requests, 0u);
}

TEST_F(WindowOps, FencedBindWaitsForReads) {
  connect();
  const memory::MrKeys window = add_window(WindowType::kType2);
  SendOptions read;
  read.rkey = pair.a.keys.rkey;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaRead, std::array{pair.b.sge(0, 100)}, read);
  SendOptions fenced = bind_request(window.rkey);
  fenced.flags |= transport::kSendFence;
  pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, fenced);
  pair.b.engine->poll_transmit(pair.now, pair.b.sink, 8);
  EXPECT_FALSE(pair.b.regions.has_windows(region.index));
  ASSERT_TRUE(pair.run());
  EXPECT_TRUE(pair.b.regions.has_windows(region.index));
  EXPECT_EQ(pair.b.poll_all().size(), 2u);
}

TEST_F(WindowOps, UnsignalledLocalOperationsFillNoCqAndKeepTheRingGoing) {
  connect();
  const memory::MrKeys window = add_window(WindowType::kType1);
  std::uint32_t rkey = window.rkey;
  for (int i = 0; i < 1000; ++i) {
    SendOptions options = bind_request(rkey);
    options.flags = 0;
    pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, options);
    rkey = bound(rkey);
    if (i % 100 == 99) {
      ASSERT_TRUE(pair.run());
    }
  }
  EXPECT_TRUE(pair.b.poll_all().empty());
  EXPECT_EQ(pair.b.regions.rkey(window.index), rkey);
  EXPECT_EQ(write(rkey), WcStatus::kSuccess);
}

TEST_F(WindowOps, BindsThatTheRulesForbidFailAndStopTheQp) {
  const auto expect_refused = [&](const SendOptions& options, WcStatus status) {
    pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, options);
    SendOptions after;
    after.rkey = pair.a.keys.rkey;
    pair.b.post_send(pair.now, qb, WrOpcode::kRdmaWrite, std::array{pair.b.sge(0, 10)}, after);
    ASSERT_TRUE(pair.run());
    const auto done = pair.b.poll_all();
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].status, status);
    EXPECT_EQ(done[0].opcode, WcOpcode::kBindMw);
    EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
    EXPECT_EQ(state_of(pair.b, qb.number), QpState::kErr);
    EXPECT_EQ(pair.b_frames, 0u);
  };
  connect();
  SendOptions outside = bind_request(add_window(WindowType::kType2).rkey);
  outside.bind.length = kBufferBytes;
  expect_refused(outside, WcStatus::kMwBindErr);
  connect();
  expect_refused(bind_request(0x1234'5678), WcStatus::kMwBindErr);
  connect();
  SendOptions inline_bind = bind_request(add_window(WindowType::kType2).rkey);
  inline_bind.flags |= transport::kSendInline;
  expect_refused(inline_bind, WcStatus::kLocQpOpErr);
}

TEST_F(WindowOps, FailedLocalOperationWaitsForWhatWasPostedBeforeIt) {
  connect();
  SendOptions first;
  first.rkey = pair.a.keys.rkey;
  first.wr_id = 1;
  pair.b_to_a = [](std::size_t n) { return n == 0 ? Fate::kDrop : Fate::kDeliver; };
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaWrite, std::array{pair.b.sge(0, 10)}, first);
  pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, bind_request(0x1234'5678, 2));
  first.wr_id = 3;
  pair.b.post_send(pair.now, qb, WrOpcode::kRdmaWrite, std::array{pair.b.sge(0, 10)}, first);
  ASSERT_TRUE(pair.run());
  const auto done = pair.b.poll_all();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kMwBindErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

struct RxeWindowOps : WindowOps {
  RxeWindowOps() : WindowOps(options()) {}
  static HostOptions options() {
    HostOptions rxe;
    rxe.engine.personality = Personality::kRxe;
    return rxe;
  }
};

TEST_F(WindowOps, LocalInvalidateOfNoWindowIsAMemoryManagementError) {
  connect();
  pair.b.post_send(pair.now, qb, WrOpcode::kLocalInv, {}, invalidate(region.rkey));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.poll_all().at(0).status, WcStatus::kMwBindErr);
}

TEST_F(RxeWindowOps, LocalInvalidateOfNoWindowIsAQpOperationErrorOfRxe) {
  connect();
  pair.b.post_send(pair.now, qb, WrOpcode::kLocalInv, {}, invalidate(region.rkey));
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(pair.b.poll_all().at(0).status, WcStatus::kLocQpOpErr);
}

// Whatever the ring says, a bind reaches only what the queue pair's domain has.
TEST_F(WindowOps, HostileBindsReachNoForeignMemory) {
  connect();
  memory::MrAttr attr = pair.b.regions.attr(region.index);
  attr.pd = PdId{2};
  const memory::MrKeys foreign = pair.b.regions.add(attr).value();
  const memory::MrKeys foreign_window =
      pair.b.regions.add_window(PdId{2}, WindowType::kType1).value();
  Prng draw(17);
  for (int round = 0; round < 500; ++round) {
    const memory::MrKeys window =
        add_window(draw.below(2) == 0 ? WindowType::kType1 : WindowType::kType2);
    SendOptions options = bind_request(window.rkey);
    switch (draw.below(6)) {
      case 0:
        options.bind.region_lkey = foreign.lkey;
        break;
      case 1:
        options.bind.window_rkey = foreign_window.rkey;
        break;
      case 2:
        options.bind.va = draw.next();
        break;
      case 3:
        options.bind.length = draw.next();
        break;
      case 4:
        options.bind.access = static_cast<std::uint32_t>(draw.next());
        break;
      default:
        options.bind.region_lkey = static_cast<std::uint32_t>(draw.next());
        break;
    }
    pair.b.post_send(pair.now, qb, WrOpcode::kBindMw, {}, options);
    ASSERT_TRUE(pair.run());
    pair.b.poll_all();
    if (state_of(pair.b, qb.number) == QpState::kErr) {
      ASSERT_TRUE(pair.b.engine->destroy_qp(pair.now, qb.number).ok());
      ASSERT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
      qa = pair.a.make_qp(1);
      qb = pair.b.make_qp(1);
      pair.connect(qa, qb);
    }
    ASSERT_FALSE(pair.b.regions.has_windows(foreign.index));
    ASSERT_EQ(pair.b.regions.rkey(foreign_window.index), foreign_window.rkey);
    (void)pair.b.regions.retire(window.index);
    pair.b.regions.release(window.index);
  }
}

}  // namespace
}  // namespace rocemu::engine::test
