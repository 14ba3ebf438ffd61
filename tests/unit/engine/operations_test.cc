// Every operation at every interesting size and MTU, clean and with each single frame lost,
// duplicated or swapped.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::uint64_t kSource = 4096 + 3;  // unaligned on purpose
constexpr std::uint64_t kTarget = 512 * 1024 + 5;
constexpr std::byte kGuard{0xee};

void fill(Host& host, std::uint64_t offset, std::uint32_t length, std::uint8_t seed) {
  for (std::uint32_t i = 0; i < length; ++i) {
    host.buffer[offset + i] = static_cast<std::byte>(seed + i * 7 + (i >> 8));
  }
}

struct Operation {
  const char* name;
  WrOpcode opcode;
  bool takes_receive;
};
constexpr Operation kOperations[] = {
    {"SEND", WrOpcode::kSend, true},
    {"SEND with immediate", WrOpcode::kSendWithImm, true},
    {"WRITE", WrOpcode::kRdmaWrite, false},
    {"WRITE with immediate", WrOpcode::kRdmaWriteWithImm, true},
    {"READ", WrOpcode::kRdmaRead, false},
};

// Runs one operation between fresh hosts, and checks data, guards and completions at both ends.
void run_operation(const Operation& op, std::uint32_t size, std::uint32_t mtu, const Fates& forth,
                   const Fates& back, std::size_t* frames_forth = nullptr,
                   std::size_t* frames_back = nullptr) {
  SCOPED_TRACE(testing::Message() << op.name << ", " << size << " bytes, MTU " << mtu);
  Pair pair;
  QpHandle qa = pair.a.make_qp();
  QpHandle qb = pair.b.make_qp();
  ConnectOptions connect;
  connect.mtu = mtu;
  pair.connect(qa, qb, connect);
  pair.a_to_b = forth;
  pair.b_to_a = back;
  const bool is_read = op.opcode == WrOpcode::kRdmaRead;
  Host& from = is_read ? pair.b : pair.a;
  Host& to = is_read ? pair.a : pair.b;
  fill(from, kSource, size, 1);
  std::fill(to.buffer.begin() + kTarget - 64, to.buffer.begin() + kTarget + size + 64, kGuard);

  if (op.takes_receive) {
    pair.b.post_recv(qb, std::array{pair.b.sge(kTarget, size + 10)}, 77);
  }
  SendOptions options;
  options.wr_id = 42;
  options.immediate = 0x01020304;
  options.rkey = pair.b.keys.rkey;
  options.remote_va = kBufferVa + (is_read ? kSource : kTarget);
  const std::uint64_t local = is_read ? kTarget : kSource;
  // Three SGEs where there is enough to split.
  const std::uint32_t third = size / 3;
  const std::array sges = {pair.a.sge(local, third), pair.a.sge(local + third, third),
                           pair.a.sge(local + 2 * third, size - 2 * third)};
  pair.a.post_send(pair.now, qa, op.opcode, sges, options);
  ASSERT_TRUE(pair.run());

  const auto done = pair.a.poll_all();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].wr_id, 42u);
  EXPECT_EQ(std::memcmp(&from.buffer[kSource], &to.buffer[kTarget], size), 0);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(to.buffer[kTarget - 1 - i], kGuard);
    EXPECT_EQ(to.buffer[kTarget + size + i], kGuard);
  }
  const auto received = pair.b.poll_all();
  ASSERT_EQ(received.size(), op.takes_receive ? 1u : 0u);
  if (op.takes_receive) {
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_EQ(received[0].wr_id, 77u);
    EXPECT_EQ(received[0].byte_length, size);
    const bool has_immediate = op.opcode != WrOpcode::kSend;
    EXPECT_EQ((received[0].flags & transport::kWcWithImm) != 0, has_immediate);
    if (has_immediate) {
      EXPECT_EQ(received[0].immediate, 0x01020304u);
    }
  }
  EXPECT_EQ(pair.a.engine->counts().inflight_requests, 0u);
  if (frames_forth != nullptr) *frames_forth = pair.a_frames;
  if (frames_back != nullptr) *frames_back = pair.b_frames;
}

TEST(Operations, EverySizeAndMtuClean) {
  for (const std::uint32_t mtu : {256u, 1024u, 4096u}) {
    for (const Operation& op : kOperations) {
      for (const std::uint32_t size :
           {0u, 1u, 63u, 64u, mtu - 1, mtu, mtu + 1, 5 * mtu + 3, 40 * mtu}) {
        run_operation(op, size, mtu, {}, {});
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Operations, EverySingleFrameLostDuplicatedSwappedOrCorrupted) {
  for (const Operation& op : kOperations) {
    for (const std::uint32_t size : {100u, 256u * 5 + 3}) {
      std::size_t forth = 0;
      std::size_t back = 0;
      run_operation(op, size, 256, {}, {}, &forth, &back);
      for (const Fate fate : {Fate::kDrop, Fate::kDuplicate, Fate::kSwapWithNext, Fate::kCorrupt}) {
        for (std::size_t n = 0; n < forth; ++n) {
          run_operation(op, size, 256,
                        [=](std::size_t i) { return i == n ? fate : Fate::kDeliver; }, {});
        }
        for (std::size_t n = 0; n < back; ++n) {
          run_operation(op, size, 256, {},
                        [=](std::size_t i) { return i == n ? fate : Fate::kDeliver; });
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Operations, InlineDataGoesOutThoughTheBufferChanges) {
  Pair pair;
  QpHandle qa = pair.a.make_qp();
  QpHandle qb = pair.b.make_qp();
  pair.connect(qa, qb);
  std::vector<std::byte> data(300);
  std::iota(reinterpret_cast<unsigned char*>(data.data()),
            reinterpret_cast<unsigned char*>(data.data()) + data.size(),
            static_cast<unsigned char>(0));
  SendOptions options;
  options.rkey = pair.b.keys.rkey;
  pair.a.post_inline(pair.now, qa, WrOpcode::kRdmaWrite, data, options);
  ASSERT_TRUE(pair.run());
  EXPECT_EQ(std::memcmp(pair.b.buffer.data(), data.data(), data.size()), 0);
  ASSERT_EQ(pair.a.poll_all().size(), 1u);
}

TEST(Operations, DirectMemoryGoesOutByReferenceAndHoldsItsQpUntilReleased) {
  for (const bool by_reference : {false, true}) {
    Pair pair;
    QpHandle qa = pair.a.make_qp();
    QpHandle qb = pair.b.make_qp();
    pair.connect(qa, qb);
    pair.a.sink.can.takes_references = by_reference;
    memory::MrAttr attr;
    attr.pd = PdId{1};
    attr.space = pair.a.space;
    attr.iova = attr.client_va = kBufferVa;
    attr.length = kBufferBytes;
    attr.access = kAllAccess;
    attr.direct_base = pair.a.buffer.data();
    attr.direct_bytes = kBufferBytes;
    const memory::MrKeys direct = pair.a.regions.add(attr).value();
    fill(pair.a, kSource, 5001, 9);
    SendOptions options;
    options.rkey = pair.b.keys.rkey;
    pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite,
                     std::array{transport::Sge{kBufferVa + kSource, 5001, direct.lkey}}, options);
    ASSERT_TRUE(pair.run());
    EXPECT_EQ(pair.a.poll_all().size(), 1u);
    EXPECT_EQ(std::memcmp(&pair.a.buffer[kSource], pair.b.buffer.data(), 5001), 0);
    EXPECT_EQ(pair.a.sink.held.size(), by_reference ? 5u : 0u);
    if (by_reference) {
      EXPECT_EQ(pair.a.engine->destroy_qp(pair.now, qa.number).error().code, EAGAIN);
      pair.a.engine->on_released(pair.now, pair.a.sink.held);
    }
    EXPECT_TRUE(pair.a.engine->destroy_qp(pair.now, qa.number).ok());
  }
}

TEST(Operations, AtomicsReturnWhatWasThereAndHappenOnceWhateverIsLost) {
  for (std::size_t lost_forth = 0; lost_forth < 5; ++lost_forth) {
    for (std::size_t lost_back = 0; lost_back < 5; ++lost_back) {
      Pair pair;
      QpHandle qa = pair.a.make_qp();
      QpHandle qb = pair.b.make_qp();
      pair.connect(qa, qb);
      pair.a_to_b = [=](std::size_t n) { return n == lost_forth ? Fate::kDrop : Fate::kDeliver; };
      pair.b_to_a = [=](std::size_t n) { return n == lost_back ? Fate::kDrop : Fate::kDeliver; };
      std::uint64_t word = 1000;
      std::memcpy(pair.b.buffer.data(), &word, 8);
      SendOptions options;
      options.rkey = pair.b.keys.rkey;
      for (std::uint64_t i = 0; i < 3; ++i) {
        options.wr_id = i;
        options.compare_add = 5;
        pair.a.post_send(pair.now, qa, WrOpcode::kAtomicFetchAndAdd,
                         std::array{pair.a.sge(8 * i, 8)}, options);
      }
      options.wr_id = 3;
      options.compare_add = 1015;
      options.swap = 7;
      pair.a.post_send(pair.now, qa, WrOpcode::kAtomicCmpAndSwp, std::array{pair.a.sge(24, 8)},
                       options);
      ASSERT_TRUE(pair.run());
      const auto done = pair.a.poll_all();
      ASSERT_EQ(done.size(), 4u);
      for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(done[i].wr_id, i);
        EXPECT_EQ(done[i].status, WcStatus::kSuccess);
        std::uint64_t original = 0;
        std::memcpy(&original, &pair.a.buffer[8 * i], 8);
        EXPECT_EQ(original, 1000 + 5 * i);
      }
      std::memcpy(&word, pair.b.buffer.data(), 8);
      EXPECT_EQ(word, 7u);
    }
  }
}

TEST(Operations, ManyRequestsOfAllKindsUnderLossCompleteOnceAndInOrder) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Prng draw(seed);
    Pair pair;
    QpHandle qa = pair.a.make_qp();
    QpHandle qb = pair.b.make_qp();
    ConnectOptions connect;
    connect.mtu = 256;
    connect.a_psn = Psn(0xff'fff0);  // wraps
    pair.connect(qa, qb, connect);
    Prng loss = draw.fork();
    const auto fate = [&loss](std::size_t) {
      const std::uint64_t v = loss.below(100);
      return v < 4   ? Fate::kDrop
             : v < 6 ? Fate::kDuplicate
             : v < 8 ? Fate::kSwapWithNext
                     : Fate::kDeliver;
    };
    pair.a_to_b = fate;
    pair.b_to_a = fate;
    std::uint64_t word = 0;
    std::memcpy(&pair.b.buffer[kBufferBytes - 8], &word, 8);
    constexpr std::uint64_t kCount = 60;
    std::uint64_t adds = 0;
    std::uint64_t receives = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      SendOptions options;
      options.wr_id = i;
      options.rkey = pair.b.keys.rkey;
      if (draw.below(8) == 0) options.flags |= transport::kSendFence;
      const auto size = static_cast<std::uint32_t>(draw.below(1500));
      const std::uint64_t slot = i * 4096;
      options.remote_va = kBufferVa + slot;
      switch (draw.below(4)) {
        case 0:
          fill(pair.a, slot, size, static_cast<std::uint8_t>(i));
          pair.a.post_send(pair.now, qa, WrOpcode::kRdmaWrite, std::array{pair.a.sge(slot, size)},
                           options);
          break;
        case 1:
          fill(pair.b, slot, size, static_cast<std::uint8_t>(i));
          pair.a.post_send(pair.now, qa, WrOpcode::kRdmaRead, std::array{pair.a.sge(slot, size)},
                           options);
          break;
        case 2:
          fill(pair.a, slot, size, static_cast<std::uint8_t>(i));
          ++receives;
          pair.b.post_recv(qb, std::array{pair.b.sge(slot, 2048)}, i);
          pair.a.post_send(pair.now, qa, WrOpcode::kSend, std::array{pair.a.sge(slot, size)},
                           options);
          break;
        case 3:
          options.remote_va = kBufferVa + kBufferBytes - 8;
          options.compare_add = 3;
          ++adds;
          fill(pair.b, slot, size, 0);
          pair.a.post_send(pair.now, qa, WrOpcode::kAtomicFetchAndAdd,
                           std::array{pair.a.sge(slot + 2048, 8)}, options);
          std::memcpy(&pair.a.buffer[slot], &pair.b.buffer[slot], size);
          break;
      }
    }
    ASSERT_TRUE(pair.run());
    const auto done = pair.a.poll_all();
    ASSERT_EQ(done.size(), kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(done[i].wr_id, i);
      EXPECT_EQ(done[i].status, WcStatus::kSuccess);
      EXPECT_EQ(std::memcmp(&pair.a.buffer[i * 4096], &pair.b.buffer[i * 4096], 1500), 0) << i;
    }
    EXPECT_EQ(pair.b.poll_all().size(), receives);
    std::memcpy(&word, &pair.b.buffer[kBufferBytes - 8], 8);
    EXPECT_EQ(word, 3 * adds);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Operations, BothSidesReadAtOnceUnderLossAndAllCompletes) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng draw(seed);
    Pair pair;
    QpHandle qa = pair.a.make_qp();
    QpHandle qb = pair.b.make_qp();
    ConnectOptions connect;
    connect.mtu = 256;
    connect.rd_atomic = static_cast<std::uint8_t>(1 + draw.below(16));
    pair.connect(qa, qb, connect);
    Prng loss = draw.fork();
    const auto fate = [&loss](std::size_t) {
      return loss.below(200) == 0 ? Fate::kDrop : Fate::kDeliver;
    };
    pair.a_to_b = fate;
    pair.b_to_a = fate;
    constexpr std::uint64_t kCount = 10;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const std::uint64_t slot = i * 40'000;
      const auto size = static_cast<std::uint32_t>(draw.below(30'000));
      for (Host* host : {&pair.a, &pair.b}) {
        Host& other = host == &pair.a ? pair.b : pair.a;
        SendOptions options;
        options.wr_id = i;
        options.rkey = other.keys.rkey;
        // Each reads from its own half of the other's slot.
        const std::uint64_t half = host == &pair.a ? 0 : 400'000;
        fill(other, slot + half, size, static_cast<std::uint8_t>(i));
        options.remote_va = kBufferVa + slot + half;
        const WrOpcode opcode = draw.below(4) == 0 ? WrOpcode::kRdmaWrite : WrOpcode::kRdmaRead;
        if (opcode == WrOpcode::kRdmaWrite)
          fill(*host, slot + half, size, static_cast<std::uint8_t>(i));
        host->post_send(pair.now, host == &pair.a ? qa : qb, opcode,
                        std::array{host->sge(slot + half, size)}, options);
      }
    }
    ASSERT_TRUE(pair.run());
    for (Host* host : {&pair.a, &pair.b}) {
      const auto done = host->poll_all();
      ASSERT_EQ(done.size(), kCount);
      for (std::uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(done[i].wr_id, i);
        EXPECT_EQ(done[i].status, WcStatus::kSuccess) << i;
      }
    }
    EXPECT_EQ(std::memcmp(pair.a.buffer.data(), pair.b.buffer.data(), 800'000), 0);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace rocemu::engine::test
