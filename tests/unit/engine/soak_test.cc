// Random work in both directions over several QPs and a wire that loses, repeats, swaps, delays and
// corrupts: every byte, every completion and every atomic is right in the end. A failure names its
// seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/unit/engine/pair.h"

namespace rocemu::engine::test {
namespace {

using transport::Sge;
using transport::WcStatus;
using transport::WrOpcode;

constexpr std::size_t kQps = 3;
constexpr std::uint64_t kOperations = 24;  // a QP and direction
constexpr std::uint64_t kSlotBytes = 6144;
constexpr std::uint64_t kWords = kBufferBytes - 64;  // one for each QP and direction

// What one side asks of the other over one QP.
struct Stream {
  Host* from = nullptr;
  Host* to = nullptr;
  QpHandle* local = nullptr;
  QpHandle* remote = nullptr;
  std::uint64_t first_slot = 0;
  std::uint64_t word = 0;
  std::uint64_t adds = 0;
  std::uint64_t receives = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> results;  // slot offset, expected value
};

class Soak {
 public:
  explicit Soak(std::uint64_t seed) : draw_(seed), loss_(draw_.fork()), pair_(options()) {
    ConnectOptions connect;
    connect.mtu = 256u << draw_.below(5);
    connect.timeout = 8;
    connect.min_rnr_timer = static_cast<std::uint8_t>(1 + draw_.below(12));
    connect.rd_atomic = static_cast<std::uint8_t>(1 + draw_.below(8));
    for (std::size_t i = 0; i < kQps; ++i) {
      connect.a_psn = Psn(static_cast<std::uint32_t>(draw_.next()));
      connect.b_psn = Psn(0xff'fff0 + static_cast<std::uint32_t>(draw_.below(32)));
      a_[i] = pair_.a.make_qp();
      b_[i] = pair_.b.make_qp();
      pair_.connect(a_[i], b_[i], connect);
      streams_[2 * i] = stream_of(pair_.a, pair_.b, a_[i], b_[i]);
      streams_[2 * i + 1] = stream_of(pair_.b, pair_.a, b_[i], a_[i]);
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].first_slot = i * kOperations;
      streams_[i].word = kWords + 8 * i;
    }
    for (auto& bound : bounds_) bound = loss_.below(80);
    pair_.a_to_b = pair_.b_to_a = [this](std::size_t) { return fate(); };
    pair_.delay = microseconds(static_cast<std::int64_t>(1 + draw_.below(1500)));
    pair_.a.sink.room = pair_.b.sink.room = 4 + draw_.below(200);
  }

  void run() {
    for (std::uint64_t i = 0; i < kOperations; ++i) {
      for (Stream& stream : streams_) post(stream, i);
      if (draw_.below(3) == 0) {
        ASSERT_TRUE(pair_.run(pair_.now + microseconds(draw_.below(2) == 0 ? 5 : 700)));
      }
    }
    // Receives that come late meet RNR NAKs.
    for (Stream& stream : streams_) {
      while (stream.receives != 0) give_receive(stream);
    }
    ASSERT_TRUE(pair_.run());
    check();
  }

 private:
  static HostOptions options() {
    HostOptions options;
    options.cq_entries = 1023;
    // Loss may be heavy enough to use up seven retries.
    options.engine.personality = Personality::kRxe;
    return options;
  }

  static Stream stream_of(Host& from, Host& to, QpHandle& local, QpHandle& remote) {
    Stream stream;
    stream.from = &from;
    stream.to = &to;
    stream.local = &local;
    stream.remote = &remote;
    return stream;
  }

  Fate fate() {
    const std::uint64_t v = loss_.below(1000);
    if (v < bounds_[0]) return Fate::kDrop;
    if (v < 100 + bounds_[1] / 2 && v >= 100) return Fate::kDuplicate;
    if (v < 200 + bounds_[2] && v >= 200) return Fate::kSwapWithNext;
    if (v < 300 + bounds_[3] / 2 && v >= 300) return Fate::kDelay;
    if (v < 400 + bounds_[4] / 8 && v >= 400) return Fate::kCorrupt;
    return Fate::kDeliver;
  }

  std::vector<Sge> split(const Host& host, std::uint64_t offset, std::uint32_t length) {
    std::vector<Sge> sges;
    while (length != 0 && sges.size() < 29) {
      const auto piece = static_cast<std::uint32_t>(draw_.between(1, length));
      sges.push_back(host.sge(offset, piece));
      if (draw_.below(8) == 0) sges.push_back(host.sge(0, 0));
      offset += piece;
      length -= piece;
    }
    if (length != 0) sges.push_back(host.sge(offset, length));
    return sges;
  }

  void fill(Host& host, std::uint64_t offset, std::uint32_t length) {
    for (std::uint32_t i = 0; i < length; ++i) {
      host.buffer[offset + i] = static_cast<std::byte>(draw_.next());
    }
  }

  void give_receive(Stream& stream) {
    const std::uint64_t index = pending_.at(stream.remote).front();
    pending_.at(stream.remote).erase(pending_.at(stream.remote).begin());
    --stream.receives;
    const auto sges = split(*stream.to, index * kSlotBytes, kSlotBytes);
    stream.to->post_recv(*stream.remote, sges, 10'000 + index);
  }

  void post(Stream& stream, std::uint64_t i) {
    const std::uint64_t slot = (stream.first_slot + i) * kSlotBytes;
    const auto size = static_cast<std::uint32_t>(draw_.below(4) == 0 ? draw_.below(100)
                                                                     : draw_.below(kSlotBytes + 1));
    SendOptions options;
    options.wr_id = i;
    options.rkey = stream.to->keys.rkey;
    options.remote_va = kBufferVa + slot;
    if (draw_.below(6) == 0) options.flags |= transport::kSendFence;
    switch (draw_.below(5)) {
      case 0:
        fill(*stream.from, slot, size);
        submit(stream, WrOpcode::kRdmaWrite, split(*stream.from, slot, size), options);
        break;
      case 1:
        fill(*stream.to, slot, size);
        submit(stream, WrOpcode::kRdmaRead, split(*stream.from, slot, size), options);
        break;
      case 2:
      case 3: {
        fill(*stream.from, slot, size);
        const bool is_write = draw_.below(2) == 0;
        pending_[stream.remote].push_back(stream.first_slot + i);
        ++stream.receives;
        if (draw_.below(2) == 0) {
          while (stream.receives != 0) give_receive(stream);
        }
        submit(stream, is_write ? WrOpcode::kRdmaWriteWithImm : WrOpcode::kSend,
               split(*stream.from, slot, size), options);
        break;
      }
      case 4:
        options.remote_va = kBufferVa + stream.word;
        options.compare_add = 3;
        stream.results.emplace_back(slot, 3 * stream.adds++);
        submit(stream, WrOpcode::kAtomicFetchAndAdd, {stream.from->sge(slot, 8)}, options);
        break;
    }
  }

  void submit(Stream& stream, WrOpcode opcode, const std::vector<Sge>& sges,
              const SendOptions& options) {
    stream.from->post_send(pair_.now, *stream.local, opcode, sges, options);
  }

  void check() {
    for (Stream& stream : streams_) {
      for (const auto& [slot, expected] : stream.results) {
        std::uint64_t value = 0;
        std::memcpy(&value, &stream.from->buffer[slot], 8);
        EXPECT_EQ(value, expected);
        std::memcpy(&stream.to->buffer[slot], &value, 8);
      }
      std::uint64_t word = 0;
      std::memcpy(&word, &stream.to->buffer[stream.word], 8);
      EXPECT_EQ(word, 3 * stream.adds);
    }
    // Slots are equal on both sides, and nothing else was ever written.
    EXPECT_EQ(std::memcmp(pair_.a.buffer.data(), pair_.b.buffer.data(), kWords), 0);
    for (Host* host : {&pair_.a, &pair_.b}) check_completions(*host);
  }

  void check_completions(Host& host) {
    std::array<std::uint64_t, kQps> next{};
    const auto& own = &host == &pair_.a ? a_ : b_;
    std::size_t sent = 0;
    for (const Wc& wc : host.poll_all()) {
      EXPECT_EQ(wc.status, WcStatus::kSuccess);
      if (static_cast<std::uint32_t>(wc.opcode) >= 128) continue;
      const auto qp = std::ranges::find_if(
          own, [&wc](const QpHandle& handle) { return handle.number.value == wc.qp; });
      ASSERT_NE(qp, own.end());
      EXPECT_EQ(wc.wr_id, next[static_cast<std::size_t>(qp - own.begin())]++);
      ++sent;
    }
    EXPECT_EQ(sent, kQps * kOperations);
    const ObjectCounts counts = host.engine->counts();
    EXPECT_EQ(counts.inflight_requests, 0u);
    EXPECT_EQ(host.sink.outstanding, 0u);
    EXPECT_TRUE(host.events.async.empty());
  }

  Prng draw_;
  Prng loss_;
  Pair pair_;
  std::array<QpHandle, kQps> a_;
  std::array<QpHandle, kQps> b_;
  std::array<Stream, 2 * kQps> streams_;
  std::array<std::uint64_t, 5> bounds_{};  ///< Per mille, by kind of damage.
  std::map<const QpHandle*, std::vector<std::uint64_t>> pending_;
};

TEST(Soak, RandomWorkOverABadWireIsRightInTheEnd) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Soak(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace rocemu::engine::test
