// Two engines, a wire between them that loses what it is told to, plain memory, rings as librxe
// writes them, and a clock that only the test moves. Everything that an application would do by
// verbs is done here on the rings.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "dataplane/engine/engine.h"
#include "dataplane/engine/rxe_queues.h"
#include "dataplane/memory/mr_table.h"
#include "dataplane/memory/plain_port.h"
#include "dataplane/wire/packet.h"

namespace rocemu::engine::test {

using Frame = std::vector<std::byte>;

inline constexpr std::uint64_t kBufferVa = 0x10'0000;
inline constexpr std::size_t kBufferBytes = 1 << 20;
inline constexpr std::uint32_t kAllAccess = memory::kAccessLocalWrite | memory::kAccessRemoteWrite |
                                            memory::kAccessRemoteRead | memory::kAccessRemoteAtomic;

/// A sink that keeps frames.
class QueueSink final : public FrameSink {
 public:
  std::optional<TxBuffer> allocate(std::size_t payload_capacity) override;
  void transmit(const TxFrame& frame) override;
  void discard(const TxBuffer& buffer) override;

  SinkCapabilities capabilities() const override { return can; }

  std::deque<Frame> frames;
  std::vector<FrameToken> held;  ///< Of frames by reference, until the test releases them.
  SinkCapabilities can;
  std::size_t room = 1024;  ///< Buffers that may be out or queued at once.
  std::size_t outstanding = 0;
};

/// Events, as they come.
struct Events final : EventSink {
  void on_completion_event(CqIndex cq) override { completions.push_back(cq); }
  void on_async_event(const AsyncEvent& event) override { async.push_back(event); }
  std::vector<CqIndex> completions;
  std::vector<AsyncEvent> async;
};

struct Wc {
  std::uint64_t wr_id = 0;
  transport::WcStatus status{};
  transport::WcOpcode opcode{};
  std::uint32_t byte_length = 0;
  std::uint32_t immediate = 0;  ///< Host order.
  std::uint32_t invalidated_rkey = 0;
  std::uint32_t flags = 0;
  std::uint32_t qp = 0;
  std::uint32_t source_qp = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t service_level = 0;
};

/// Where a datagram goes.
struct DatagramTo {
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
  std::uint32_t ah_number = 0;
};

struct SendOptions {
  std::uint64_t wr_id = 1;
  std::uint32_t flags = transport::kSendSignaled;
  std::uint32_t immediate = 0;
  std::uint64_t remote_va = kBufferVa;
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t invalidate_rkey = 0;  ///< Of kLocalInv and kSendWithInv.
  memory::WindowBind bind{};          ///< Of kBindMw.
  transport::FlushRange flush{};      ///< Of kFlush.
  std::optional<DatagramTo> to{};
};

/// One queue pair of a host with its rings, and the application's side of them.
struct QpHandle {
  QpNum number;
  transport::RingRef send_ring;
  transport::RingRef recv_ring;
  std::uint32_t sq_producer = 0;
  std::uint32_t rq_producer = 0;
};

/// A shared receive queue of a host, and the application's side of it.
struct SrqHandle {
  SrqIndex index;
  transport::RingRef ring;
  std::uint32_t producer = 0;
};

struct HostOptions {
  EngineConfig engine;
  std::uint32_t cq_entries = 255;
};

/// One NIC and one application on it.
class Host {
 public:
  explicit Host(std::uint8_t number, const HostOptions& options = {});

  QpHandle make_qp(std::uint32_t entries = 127, bool signal_all = false,
                   transport::QpType type = transport::QpType::kRc);
  SrqHandle make_srq(std::uint32_t entries = 127, PdId pd = PdId{1});
  QpHandle make_qp_on(const SrqHandle& srq, PdId pd = PdId{1});
  void post_send(Time now, QpHandle& qp, transport::WrOpcode opcode,
                 std::span<const transport::Sge> sges, const SendOptions& options);
  void post_inline(Time now, QpHandle& qp, transport::WrOpcode opcode,
                   std::span<const std::byte> data, const SendOptions& options);
  /// As post_inline, without the flag: the operand of wr_atomic_write.
  void post_operand(Time now, QpHandle& qp, transport::WrOpcode opcode,
                    std::span<const std::byte> data, const SendOptions& options);
  void post_recv(QpHandle& qp, std::span<const transport::Sge> sges, std::uint64_t wr_id);
  void post_srq_recv(SrqHandle& srq, std::span<const transport::Sge> sges, std::uint64_t wr_id);
  std::optional<Wc> poll();
  std::vector<Wc> poll_all();
  void arm(std::uint32_t value);
  std::uint32_t arm_word() const;

  transport::Sge sge(std::uint64_t offset, std::uint32_t length) const {
    return {kBufferVa + offset, length, keys.lkey};
  }
  std::byte* ring_bytes(const transport::RingRef& ring) { return rings.data() + ring.offset; }

  std::vector<std::byte> buffer;
  std::vector<std::byte> rings;
  RxeQueues queues;
  memory::PlainPort memory;
  memory::MrTable regions;
  Events events;
  CounterBlock counters;
  QueueSink sink;
  SpaceId space;
  memory::MrKeys keys;
  RegionId region;
  wire::Gid gid{};
  wire::MacAddress mac{};
  CqIndex cq;
  transport::RingRef cq_ring;
  std::unique_ptr<Engine> engine;

 private:
  transport::RingRef make_ring(std::uint32_t entries, std::uint32_t log2_stride);
  void write_recv(const transport::RingRef& ring, std::uint32_t index,
                  std::span<const transport::Sge> sges, std::uint64_t wr_id);
  std::byte* next_send_wqe(QpHandle& qp);
  void publish_send(Time now, QpHandle& qp);

  std::uint64_t next_offset_ = 4096;  ///< The first page holds the arm word.
  std::uint32_t cq_consumer_ = 0;
};

struct ConnectOptions {
  std::uint32_t mtu = 1024;
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t rd_atomic = 16;
  std::uint32_t access = kAllAccess;
  Psn a_psn{100};
  Psn b_psn{5000};
};

/// What happens to the nth frame (from 0) of a direction.
enum class Fate : std::uint8_t { kDeliver, kDrop, kDuplicate, kSwapWithNext, kCorrupt, kDelay };
using Fates = std::function<Fate(std::size_t n)>;

class Pair {
 public:
  explicit Pair(const HostOptions& options = {}) : a(0, options), b(1, options) {}

  void connect(QpHandle& qa, QpHandle& qb, const ConnectOptions& options = {});
  /// Runs until nothing moves and no timer is due before `until`; bounded by turns. Returns false
  /// at the bound.
  bool run(Time until = Time{} + seconds(600), std::size_t max_turns = 200'000);
  /// One exchange without moving the clock. True when something moved.
  bool turn();

  Host a;
  Host b;
  Time now{1'000'000};
  Fates a_to_b;
  Fates b_to_a;
  std::size_t a_frames = 0;
  std::size_t b_frames = 0;
  Duration delay = milliseconds(1);  ///< Of frames whose fate it is.

  /// All that `from` has to send, taken off its sink and not delivered.
  std::deque<Frame> collect(Host& from);
  /// One burst.
  void deliver(Host& to, std::span<const Frame> frames);

 private:
  struct Late {
    Time at;
    Host* to = nullptr;
    Frame frame;
  };

  bool carry(Host& from, Host& to, const Fates& fates, std::size_t& count);
  bool deliver_late();

  std::vector<Late> late_;
};

/// A frame as `from` would send it to the QP `qpn` of `to`: the test says BTH and what follows.
Frame make_frame(const Host& from, const Host& to, QpNum qpn, wire::Packet packet,
                 std::span<const std::byte> payload = {});
wire::Packet parse(const Frame& frame);

/// A RESET QP of `from` brought to RTS, or to RTR, towards `remote` on `to`.
void bring_up(Host& from, QpNum local, const Host& to, QpNum remote, Psn sq_psn, Psn rq_psn,
              const ConnectOptions& options, Time now,
              transport::QpState last = transport::QpState::kRts);

}  // namespace rocemu::engine::test
