#include "tests/unit/engine/pair.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dataplane/wire/packet.h"
#include "rocemu/abi/doorbell.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"

namespace rocemu::engine::test {
namespace {

constexpr std::size_t kRingBytes = 8 << 20;
constexpr std::uint32_t kSendStrideLog2 = 10;  // 208 + 32 SGEs
constexpr std::uint32_t kRecvStrideLog2 = 10;

EngineConfig small(EngineConfig config) {
  config.limits.max_qps = std::min(config.limits.max_qps, 256u);
  config.limits.max_cqs = std::min(config.limits.max_cqs, 64u);
  config.limits.max_srqs = std::min(config.limits.max_srqs, 16u);
  config.limits.max_inflight_requests = std::min(config.limits.max_inflight_requests, 4096u);
  config.limits.max_responder_resources = std::min(config.limits.max_responder_resources, 4096u);
  return config;
}

}  // namespace

std::optional<TxBuffer> QueueSink::allocate(std::size_t payload_capacity) {
  if (outstanding == room) return std::nullopt;
  ++outstanding;
  const std::size_t bytes = (kTxHeadroom + payload_capacity + 63) / 64 * 64;
  auto* base = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  return TxBuffer{base, static_cast<std::uint32_t>(bytes), base};
}

void QueueSink::transmit(const TxFrame& frame) {
  const std::byte* begin = frame.buffer.base + frame.headers_start;
  if (frame.references.empty()) {
    frames.emplace_back(begin, begin + frame.length);
  } else {
    Frame whole(begin, begin + frame.headers_bytes);
    for (const auto& piece : frame.references)
      whole.insert(whole.end(), piece.begin(), piece.end());
    const std::byte* trailer = begin + frame.headers_bytes;
    whole.insert(whole.end(), trailer, trailer + frame.trailer_bytes);
    EXPECT_EQ(whole.size(), frame.length);
    frames.push_back(std::move(whole));
    held.push_back(frame.token);
  }
  discard(frame.buffer);
}

void QueueSink::discard(const TxBuffer& buffer) {
  std::free(buffer.handle);
  --outstanding;
}

Host::Host(std::uint8_t number, const HostOptions& options)
    : buffer(kBufferBytes), rings(kRingBytes), queues(4), regions(1024, Prng(7 + number)) {
  space = memory.add_space(kBufferVa, buffer);
  memory::MrAttr attr;
  attr.pd = PdId{1};
  attr.space = space;
  attr.iova = attr.client_va = kBufferVa;
  attr.length = kBufferBytes;
  attr.access = kAllAccess;
  keys = regions.add(attr).value();
  region = queues.add_region(rings);
  mac = {2, 0, 0, 0, 0, number};
  gid[10] = gid[11] = 0xff;
  gid[12] = 10;
  gid[15] = static_cast<std::uint8_t>(number + 1);
  engine = std::make_unique<Engine>(small(options.engine), queues, memory, regions, events,
                                    counters, Prng(number));
  EXPECT_TRUE(engine->set_gids({&gid, 1}).ok());
  cq_ring = make_ring(options.cq_entries, 6);
  cq = engine->create_cq({.context = ContextId{1}, .ring = cq_ring, .arm = {region, 0}}).value();
}

transport::RingRef Host::make_ring(std::uint32_t entries, std::uint32_t log2_stride) {
  const std::uint32_t count = std::bit_ceil(entries + 1);
  transport::RingRef ring{region, next_offset_, log2_stride, count - 1};
  next_offset_ += (RxeQueues::ring_bytes(log2_stride, count) + 4095) / 4096 * 4096;
  EXPECT_TRUE(queues.format_ring(ring));
  return ring;
}

QpHandle Host::make_qp(std::uint32_t entries, bool signal_all, transport::QpType type) {
  QpHandle qp;
  qp.send_ring = make_ring(entries, kSendStrideLog2);
  qp.recv_ring = make_ring(entries, kRecvStrideLog2);
  transport::QpInit init;
  init.type = type;
  init.context = ContextId{1};
  init.pd = PdId{1};
  init.send_cq = init.recv_cq = cq;
  init.send_ring = qp.send_ring;
  init.recv_ring = qp.recv_ring;
  init.caps = {entries, entries, 32, 32, 512};
  init.signal_all = signal_all;
  qp.number = engine->create_qp(init).value();
  return qp;
}

SrqHandle Host::make_srq(std::uint32_t entries, PdId pd) {
  SrqHandle srq;
  srq.ring = make_ring(entries, kRecvStrideLog2);
  srq.index = engine->create_srq({ContextId{1}, pd, srq.ring, 32}).value();
  return srq;
}

QpHandle Host::make_qp_on(const SrqHandle& srq, PdId pd) {
  QpHandle qp;
  qp.send_ring = make_ring(127, kSendStrideLog2);
  transport::QpInit init;
  init.context = ContextId{1};
  init.pd = pd;
  init.send_cq = init.recv_cq = cq;
  init.srq = srq.index;
  init.send_ring = qp.send_ring;
  init.caps = {127, 0, 32, 0, 512};
  qp.number = engine->create_qp(init).value();
  return qp;
}

std::byte* Host::next_send_wqe(QpHandle& qp) {
  return ring_bytes(qp.send_ring) + rxe::kQueueData +
         (std::size_t{qp.sq_producer & qp.send_ring.mask} << qp.send_ring.log2_stride);
}

void Host::publish_send(Time now, QpHandle& qp) {
  ++qp.sq_producer;
  store(ring_bytes(qp.send_ring) + rxe::kQueueProducerIndex, qp.sq_producer & qp.send_ring.mask);
  engine->on_doorbells(now, {&qp.number, 1});
}

namespace {

void write_send(std::byte* wqe, transport::WrOpcode opcode, const SendOptions& o) {
  store(wqe + rxe::kSendWrId, o.wr_id);
  store(wqe + rxe::kSendOpcode, static_cast<std::uint32_t>(opcode));
  store(wqe + rxe::kSendFlags, o.flags);
  store_be<std::uint32_t>(wqe + rxe::kSendEx, o.immediate);
  if (opcode == transport::WrOpcode::kLocalInv || opcode == transport::WrOpcode::kSendWithInv) {
    store(wqe + rxe::kSendEx, o.invalidate_rkey);
  }
  if (opcode == transport::WrOpcode::kBindMw) {
    store(wqe + rxe::kSendMwAddr, o.bind.va);
    store(wqe + rxe::kSendMwLength, o.bind.length);
    store(wqe + rxe::kSendMwMrLkey, o.bind.region_lkey);
    store(wqe + rxe::kSendMwMwRkey, o.bind.window_rkey);
    store(wqe + rxe::kSendMwRkey, o.bind.new_rkey);
    store(wqe + rxe::kSendMwAccess, o.bind.access);
    return;
  }
  if (o.to) {
    store(wqe + rxe::kSendUdRemoteQpn, o.to->qpn);
    store(wqe + rxe::kSendUdRemoteQkey, o.to->qkey);
    store(wqe + rxe::kSendUdAhNum, o.to->ah_number);
    return;
  }
  store(wqe + rxe::kSendRemoteAddr, o.remote_va);
  if (opcode == transport::WrOpcode::kFlush) {
    store(wqe + rxe::kSendFlushLength, o.flush.length);
    store(wqe + rxe::kSendFlushRkey, o.rkey);
    store(wqe + rxe::kSendFlushType, o.flush.type);
    store(wqe + rxe::kSendFlushLevel, o.flush.level);
    return;
  }
  const bool is_atomic = opcode == transport::WrOpcode::kAtomicCmpAndSwp ||
                         opcode == transport::WrOpcode::kAtomicFetchAndAdd;
  if (is_atomic) {
    store(wqe + rxe::kSendAtomicCompareAdd, o.compare_add);
    store(wqe + rxe::kSendAtomicSwap, o.swap);
    store(wqe + rxe::kSendAtomicRkey, o.rkey);
  } else {
    store(wqe + rxe::kSendRdmaRkey, o.rkey);
  }
}

std::uint32_t write_sges(std::byte* dma, std::span<const transport::Sge> sges) {
  std::uint32_t total = 0;
  for (std::size_t i = 0; i < sges.size(); ++i) {
    std::byte* p = dma + rxe::kDmaData + i * rxe::kSgeBytes;
    store(p + rxe::kSgeAddr, sges[i].va);
    store(p + rxe::kSgeLength, sges[i].length);
    store(p + rxe::kSgeLkey, sges[i].lkey);
    total += sges[i].length;
  }
  store(dma + rxe::kDmaLength, total);
  store(dma + rxe::kDmaNumSge, static_cast<std::uint32_t>(sges.size()));
  return total;
}

}  // namespace

void Host::post_send(Time now, QpHandle& qp, transport::WrOpcode opcode,
                     std::span<const transport::Sge> sges, const SendOptions& options) {
  std::byte* wqe = next_send_wqe(qp);
  write_send(wqe, opcode, options);
  write_sges(wqe + rxe::kSendDma, sges);
  publish_send(now, qp);
}

void Host::post_inline(Time now, QpHandle& qp, transport::WrOpcode opcode,
                       std::span<const std::byte> data, const SendOptions& options) {
  SendOptions with_flag = options;
  with_flag.flags |= transport::kSendInline;
  post_operand(now, qp, opcode, data, with_flag);
}

void Host::post_operand(Time now, QpHandle& qp, transport::WrOpcode opcode,
                        std::span<const std::byte> data, const SendOptions& options) {
  std::byte* wqe = next_send_wqe(qp);
  write_send(wqe, opcode, options);
  store(wqe + rxe::kSendDma + rxe::kDmaLength, static_cast<std::uint32_t>(data.size()));
  store(wqe + rxe::kSendDma + rxe::kDmaNumSge, std::uint32_t{0});
  std::ranges::copy(data, wqe + rxe::kSendDma + rxe::kDmaData);
  publish_send(now, qp);
}

void Host::write_recv(const transport::RingRef& ring, std::uint32_t index,
                      std::span<const transport::Sge> sges, std::uint64_t wr_id) {
  std::byte* wqe =
      ring_bytes(ring) + rxe::kQueueData + (std::size_t{index & ring.mask} << ring.log2_stride);
  store(wqe + rxe::kRecvWrId, wr_id);
  write_sges(wqe + rxe::kRecvDma, sges);
  store(ring_bytes(ring) + rxe::kQueueProducerIndex, (index + 1) & ring.mask);
}

void Host::post_recv(QpHandle& qp, std::span<const transport::Sge> sges, std::uint64_t wr_id) {
  write_recv(qp.recv_ring, qp.rq_producer++, sges, wr_id);
}

void Host::post_srq_recv(SrqHandle& srq, std::span<const transport::Sge> sges,
                         std::uint64_t wr_id) {
  write_recv(srq.ring, srq.producer++, sges, wr_id);
}

std::optional<Wc> Host::poll() {
  std::byte* head = ring_bytes(cq_ring);
  const auto producer = load<std::uint32_t>(head + rxe::kQueueProducerIndex);
  if ((producer & cq_ring.mask) == (cq_consumer_ & cq_ring.mask)) return std::nullopt;
  const std::byte* wc =
      head + rxe::kQueueData + (std::size_t{cq_consumer_ & cq_ring.mask} << cq_ring.log2_stride);
  Wc out;
  out.wr_id = load<std::uint64_t>(wc + rxe::kWcWrId);
  out.status = static_cast<transport::WcStatus>(load<std::uint32_t>(wc + rxe::kWcStatus));
  out.opcode = static_cast<transport::WcOpcode>(load<std::uint32_t>(wc + rxe::kWcOpcode));
  out.byte_length = load<std::uint32_t>(wc + rxe::kWcByteLen);
  out.immediate = load_be<std::uint32_t>(wc + rxe::kWcEx);
  out.invalidated_rkey = load<std::uint32_t>(wc + rxe::kWcEx);
  out.flags = load<std::uint32_t>(wc + rxe::kWcFlags);
  out.qp = load<std::uint32_t>(wc + rxe::kWcQpNum);
  out.source_qp = load<std::uint32_t>(wc + rxe::kWcSrcQp);
  out.pkey_index = load<std::uint16_t>(wc + rxe::kWcPkeyIndex);
  out.service_level = std::to_integer<std::uint8_t>(wc[rxe::kWcSl]);
  ++cq_consumer_;
  store(head + rxe::kQueueConsumerIndex, cq_consumer_ & cq_ring.mask);
  return out;
}

std::vector<Wc> Host::poll_all() {
  std::vector<Wc> out;
  while (const auto wc = poll()) out.push_back(*wc);
  return out;
}

void Host::arm(std::uint32_t value) { store(rings.data(), value); }
std::uint32_t Host::arm_word() const { return load<std::uint32_t>(rings.data()); }

void bring_up(Host& from, QpNum local, const Host& to, QpNum remote, Psn sq_psn, Psn rq_psn,
              const ConnectOptions& o, Time now, transport::QpState last) {
  using namespace transport;
  const bool is_rc = from.engine->snapshot(local)->type == QpType::kRc;
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.access = o.access;
  ASSERT_TRUE(
      from.engine->modify_qp(now, local, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags)
          .ok());
  attr.state = QpState::kRtr;
  attr.path_mtu_bytes = o.mtu;
  attr.destination_qp = remote;
  attr.rq_psn = rq_psn;
  attr.max_dest_rd_atomic = o.rd_atomic;
  attr.min_rnr_timer = o.min_rnr_timer;
  attr.av.headers.source = from.gid;
  attr.av.headers.destination = to.gid;
  attr.av.headers.source_mac = from.mac;
  attr.av.headers.destination_mac = to.mac;
  attr.av.headers.udp_source_port = 0xc000;
  ASSERT_TRUE(from.engine
                  ->modify_qp(now, local, attr,
                              kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                                  (is_rc ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0u))
                  .ok());
  if (last == QpState::kRtr) return;
  attr.state = QpState::kRts;
  attr.timeout = o.timeout;
  attr.retry_count = o.retry_count;
  attr.rnr_retry = o.rnr_retry;
  attr.sq_psn = sq_psn;
  attr.max_rd_atomic = o.rd_atomic;
  ASSERT_TRUE(
      from.engine
          ->modify_qp(now, local, attr,
                      kQpState | kQpSqPsn |
                          (is_rc ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0u))
          .ok());
}

void Pair::connect(QpHandle& qa, QpHandle& qb, const ConnectOptions& options) {
  bring_up(a, qa.number, b, qb.number, options.a_psn, options.b_psn, options, now);
  bring_up(b, qb.number, a, qa.number, options.b_psn, options.a_psn, options, now);
}

bool Pair::carry(Host& from, Host& to, const Fates& fates, std::size_t& count) {
  if (from.sink.frames.empty()) return false;
  std::deque<Frame> batch;
  batch.swap(from.sink.frames);
  std::vector<Frame> arriving;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Fate fate = fates ? fates(count) : Fate::kDeliver;
    ++count;
    switch (fate) {
      case Fate::kDrop:
        continue;
      case Fate::kDelay:
        late_.push_back({now + delay, &to, batch[i]});
        continue;
      case Fate::kDuplicate:
        arriving.push_back(batch[i]);
        break;
      case Fate::kSwapWithNext:
        if (i + 1 < batch.size()) {
          std::swap(batch[i], batch[i + 1]);
        }
        break;
      case Fate::kCorrupt:
        batch[i].back() ^= std::byte{1};
        break;
      case Fate::kDeliver:
        break;
    }
    arriving.push_back(batch[i]);
  }
  deliver(to, arriving);
  return true;
}

void Pair::deliver(Host& to, std::span<const Frame> arriving) {
  std::vector<RxFrame> frames;
  std::vector<std::unique_ptr<std::byte[]>>
      blocks;  // exact-size: the sanitizer sees a read past the end
  for (const Frame& frame : arriving) {
    auto block = std::make_unique<std::byte[]>(frame.size());
    std::ranges::copy(frame, block.get());
    frames.emplace_back(std::span<const std::byte>(block.get(), frame.size()), nullptr, nullptr);
    blocks.push_back(std::move(block));
  }
  to.engine->on_frames(now, frames);
}

std::deque<Frame> Pair::collect(Host& from) {
  while (from.engine->poll_transmit(now, from.sink, 64) != 0) {
  }
  return std::exchange(from.sink.frames, {});
}

bool Pair::deliver_late() {
  const auto is_due = [this](const Late& late) { return late.at <= now; };
  const auto first = std::ranges::find_if(late_, is_due);
  if (first == late_.end()) return false;
  const Late due = std::move(*first);
  late_.erase(first);
  deliver(*due.to, {&due.frame, 1});
  return true;
}

bool Pair::turn() {
  bool has_moved = a.engine->poll_transmit(now, a.sink, 64) != 0;
  has_moved |= b.engine->poll_transmit(now, b.sink, 64) != 0;
  has_moved |= carry(a, b, a_to_b, a_frames);
  has_moved |= carry(b, a, b_to_a, b_frames);
  has_moved |= deliver_late();
  return has_moved;
}

bool Pair::run(Time until, std::size_t max_turns) {
  for (std::size_t i = 0; i < max_turns; ++i) {
    a.engine->on_deadline(now);
    b.engine->on_deadline(now);
    if (turn()) {
      now = now + nanoseconds(100);
      continue;
    }
    Time next = Time::never();
    for (const Host* host : {&a, &b}) {
      if (const auto deadline = host->engine->next_deadline()) next = std::min(next, *deadline);
    }
    for (const Late& late : late_) next = std::min(next, late.at);
    if (next > until || next.is_never()) return true;
    now = std::max(now, next);
  }
  return false;
}

Frame make_frame(const Host& from, const Host& to, QpNum qpn, wire::Packet packet,
                 std::span<const std::byte> payload) {
  packet.path.source = from.gid;
  packet.path.destination = to.gid;
  packet.path.source_mac = from.mac;
  packet.path.destination_mac = to.mac;
  packet.path.udp_source_port = 0xc000;
  packet.bth.destination_qp = qpn;
  packet.bth.pad_count = wire::pad_count(payload.size());
  Frame frame(kTxHeadroom + payload.size() + 8);
  std::byte* at = frame.data() + kTxHeadroom;
  const std::size_t headers = wire::write_headers(packet, payload.size(), at);
  std::ranges::copy(payload, at);
  const std::size_t length =
      wire::finish_frame(at - headers, headers, 14, packet.path.kind, payload.size());
  return {at - headers, at - headers + length};
}

wire::Packet parse(const Frame& frame) {
  wire::Packet packet;
  EXPECT_EQ(wire::parse_packet(frame, packet), DropReason::none);
  return packet;
}

}  // namespace rocemu::engine::test
