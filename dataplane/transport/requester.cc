#include "dataplane/transport/requester.h"

#include <algorithm>
#include <cstring>

#include "dataplane/transport/completer.h"
#include "dataplane/transport/local_operations.h"
#include "dataplane/transport/recovery.h"
#include "dataplane/transport/unreliable.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

constexpr std::uint32_t kMaxPsnsOutstanding = 1u << 23;  // 9.7.7.1

// A READ asks for so many packets at once, so that all that is outstanding can be told apart by
// signed distance.
constexpr std::uint32_t kMaxReadPackets = 1u << 22;

// Work requests that send nothing and are done in one go.
constexpr std::uint32_t kMaxLocalInTurn = 256;

// How long a QP waits when the shard has no send record left.
constexpr Duration kBeginDelay = microseconds(50);

// A work request with this bit in its Q_Key sends the QP's own (10.2.5).
constexpr std::uint32_t kOwnQkeyFlag = 0x8000'0000;

bool is_transferring_state(QpState state) {
  return state == QpState::kRts || state == QpState::kSqd;
}

std::uint32_t div_ceil(std::uint32_t a, std::uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::uint32_t packets_of(std::uint32_t length, std::uint32_t mtu) {
  return std::max(1u, div_ceil(length, mtu));
}

// What the transport service offers (9.8.1, table 33).
bool is_offered(QpType type, WrOpcode opcode) {
  const bool is_send = opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm;
  switch (type) {
    case QpType::kRc:
      return true;
    case QpType::kUc:
      return is_send || opcode == WrOpcode::kRdmaWrite || opcode == WrOpcode::kRdmaWriteWithImm;
    case QpType::kUd:
    case QpType::kGsi:
      return is_send;
  }
  return false;
}

// What a QP takes, and how it must look (11.4.1.1).
WcStatus check_request(const SendWorkRequest& wr, const Qp& qp) {
  if (!is_offered(qp.type, wr.opcode)) return WcStatus::kLocQpOpErr;
  switch (wr.opcode) {
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImm:
    case WrOpcode::kSendWithInv:
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImm:
      return wr.length <= kMaxMessageBytes ? WcStatus::kSuccess : WcStatus::kLocLenErr;
    case WrOpcode::kRdmaRead:
      if ((wr.flags & kSendInline) != 0 || qp.attr.max_rd_atomic == 0) {
        return WcStatus::kLocQpOpErr;
      }
      return wr.length <= kMaxMessageBytes ? WcStatus::kSuccess : WcStatus::kLocLenErr;
    case WrOpcode::kAtomicCmpAndSwp:
    case WrOpcode::kAtomicFetchAndAdd:
      if ((wr.flags & kSendInline) != 0 || qp.attr.max_rd_atomic == 0) {
        return WcStatus::kLocQpOpErr;
      }
      return wr.length == 8 ? WcStatus::kSuccess : WcStatus::kLocLenErr;
    case WrOpcode::kLocalInv:
    case WrOpcode::kBindMw:
      return (wr.flags & kSendInline) == 0 ? WcStatus::kSuccess : WcStatus::kLocQpOpErr;
    case WrOpcode::kFlush:
      return wr.length == 0 && qp.attr.max_rd_atomic != 0 ? WcStatus::kSuccess
                                                          : WcStatus::kLocQpOpErr;
    case WrOpcode::kAtomicWrite:
      if (qp.attr.max_rd_atomic == 0) return WcStatus::kLocQpOpErr;
      return wr.length == 8 ? WcStatus::kSuccess : WcStatus::kLocLenErr;
  }
  return WcStatus::kLocQpOpErr;
}

bool must_wait(const Qp& qp, const SendWorkRequest& wr, const SendRecord& record) {
  if (record.is_local()) return must_local_wait(qp, wr);
  if ((wr.flags & kSendFence) != 0 && qp.reads_outstanding != 0) return true;
  if (record.needs_response() && qp.reads_outstanding >= qp.attr.max_rd_atomic) return true;
  const auto outstanding = static_cast<std::uint32_t>(distance(qp.unacked_psn, qp.next_psn));
  return outstanding + record.psn_count > kMaxPsnsOutstanding;
}

// A datagram longer than the port's MTU is not sent, and is no error (C10-93.1.1).
std::uint32_t request_packets(const Qp& qp, std::uint32_t length) {
  if (qp.is_datagram() && length > qp.path_mtu) return 0;
  return packets_of(length, qp.path_mtu);
}

void append_record(Shard& shard, Qp& qp, std::uint32_t index) {
  if (qp.record_tail == kNoIndex) {
    qp.record_head = index;
  } else {
    shard.records[qp.record_tail].next = index;
  }
  qp.record_tail = index;
}

enum class Begun : std::uint8_t {
  kNothing,  ///< It must wait, has failed, or there is none.
  kRequest,  ///< It is the one being sent.
  kLocal,    ///< It sends nothing and is done.
};

// Begins the work request at sq_next: numbers it and makes it the one being sent, or does it.
Begun begin_request(Shard& shard, Qp& qp, Time now) {
  if (qp.state != QpState::kRts || qp.sq_next == qp.sq_published) return Begun::kNothing;
  const SendWorkRequest* wr = read_send(shard, qp, qp.sq_next);
  SendRecord record;
  record.wr_id = shard.send_wr.wr_id;  // there even when the rest is nonsense
  record.wqe_index = qp.sq_next;
  record.first_psn = qp.next_psn;
  record.is_signaled = qp.signal_all;
  if (wr == nullptr) {
    record.failure = WcStatus::kLocQpOpErr;
    record.is_refused = true;
  } else {
    record.opcode = wr->opcode;
    record.length = wr->length;
    record.is_signaled |= (wr->flags & kSendSignaled) != 0;
    record.failure = check_request(*wr, qp);
    record.is_refused = record.failure != WcStatus::kSuccess;
    if (record.is_local()) {
      record.psn_count = 0;
    } else if (!record.is_refused && !record.is_atomic() && !record.is_placement()) {
      record.psn_count = request_packets(qp, record.length);
    }
    if (!record.is_refused && must_wait(qp, *wr, record)) return Begun::kNothing;
  }
  const auto index = shard.records.acquire();
  if (!index) {
    set_timer(shard, qp, TimerKind::kBegin, now + kBeginDelay);
    return Begun::kNothing;
  }
  if (record.is_local() && !record.is_refused) {
    record.failure = run_local(shard, qp, *wr);
    record.is_refused = record.failure != WcStatus::kSuccess;
  }
  shard.records[*index] = record;
  append_record(shard, qp, *index);
  ++qp.sq_next;
  if (record.is_local() && !record.is_refused) {
    settle_head(shard, qp, now);
    return Begun::kLocal;
  }
  if (record.psn_count == 0 && !record.is_refused) {
    end_sent_requests(shard, qp, now);
    return Begun::kLocal;
  }
  qp.tx_record = *index;
  qp.tx_packet = 0;
  if (record.is_refused) {
    settle_head(shard, qp, now);
    return Begun::kNothing;
  }
  qp.next_psn = record.last_psn().next();
  if (record.needs_response()) ++qp.reads_outstanding;
  return Begun::kRequest;
}

// Begins requests up to the next one that sends something. False: there is none now. Others have
// their turn after many that send nothing.
bool begin_next(Shard& shard, Qp& qp, Time now) {
  for (std::uint32_t i = 0; i < kMaxLocalInTurn; ++i) {
    const Begun begun = begin_request(shard, qp, now);
    if (begun != Begun::kLocal) return begun == Begun::kRequest;
  }
  schedule(shard, qp);
  return false;
}

struct Segment {
  wire::Opcode opcode{};
  Psn psn;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t psn_count = 1;
  bool is_last = false;  ///< Of its work request.
};

// Opcodes by position, FIRST MIDDLE LAST ONLY.
wire::Opcode pick(bool is_first, bool is_last, std::array<wire::Opcode, 4> opcodes) {
  return opcodes[is_last ? (is_first ? 3 : 2) : (is_first ? 0 : 1)];
}

wire::Opcode data_opcode(WrOpcode opcode, bool is_first, bool is_last) {
  using enum wire::Opcode;
  switch (opcode) {
    case WrOpcode::kSend:
      return pick(is_first, is_last, {kRcSendFirst, kRcSendMiddle, kRcSendLast, kRcSendOnly});
    case WrOpcode::kSendWithImm:
      return pick(is_first, is_last, {kRcSendFirst, kRcSendMiddle, kRcSendLastImm, kRcSendOnlyImm});
    case WrOpcode::kSendWithInv:
      return pick(is_first, is_last,
                  {kRcSendFirst, kRcSendMiddle, kRcSendLastInvalidate, kRcSendOnlyInvalidate});
    case WrOpcode::kRdmaWriteWithImm:
      return pick(is_first, is_last,
                  {kRcWriteFirst, kRcWriteMiddle, kRcWriteLastImm, kRcWriteOnlyImm});
    default:
      return pick(is_first, is_last, {kRcWriteFirst, kRcWriteMiddle, kRcWriteLast, kRcWriteOnly});
  }
}

// The opcodes of the services differ in their top three bits (table 37).
wire::Opcode of_service(QpType type, wire::Opcode rc) {
  const wire::Service service = type == QpType::kRc   ? wire::Service::kRc
                                : type == QpType::kUc ? wire::Service::kUc
                                                      : wire::Service::kUd;
  return static_cast<wire::Opcode>(static_cast<std::uint8_t>(service) << 5 |
                                   static_cast<std::uint8_t>(rc));
}

Segment next_segment(const Qp& qp, const SendRecord& record) {
  Segment segment;
  segment.psn = record.first_psn + static_cast<std::int32_t>(qp.tx_packet);
  segment.offset = std::uint64_t{qp.tx_packet} * qp.path_mtu;
  if (record.is_read()) {
    segment.opcode = wire::Opcode::kRcReadRequest;
    // A READ that goes on half-way ends where the first asking ended.
    segment.psn_count =
        std::min(record.psn_count - qp.tx_packet, kMaxReadPackets - qp.tx_packet % kMaxReadPackets);
  } else if (record.is_atomic()) {
    segment.opcode = record.opcode == WrOpcode::kAtomicCmpAndSwp ? wire::Opcode::kRcCompareSwap
                                                                 : wire::Opcode::kRcFetchAdd;
  } else if (record.is_placement()) {
    segment.opcode =
        record.opcode == WrOpcode::kFlush ? wire::Opcode::kRcFlush : wire::Opcode::kRcAtomicWrite;
    segment.length = record.length;
  } else {
    const bool is_last = qp.tx_packet + 1 == record.psn_count;
    segment.opcode = of_service(qp.type, data_opcode(record.opcode, qp.tx_packet == 0, is_last));
    segment.length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(qp.path_mtu, record.length - segment.offset));
  }
  segment.is_last = qp.tx_packet + segment.psn_count == record.psn_count;
  return segment;
}

// Acknowledgements are asked for at the end of a message, every so often within one, and when the
// window closes with this packet.
bool needs_ack(const Shard& shard, const Qp& qp, const Segment& segment) {
  if (!qp.is_reliable()) return false;
  if (segment.is_last || qp.packets_since_ack_req + 1 >= shard.config.ack_interval_packets) {
    return true;
  }
  const std::int32_t outstanding = distance(qp.unacked_psn, segment.psn);
  return static_cast<std::uint32_t>(outstanding) + 1 >= shard.config.max_unacked_packets;
}

wire::Packet transport_headers(const Shard& shard, const Qp& qp, const SendRecord& record,
                               const SendWorkRequest& wr, const Segment& segment) {
  wire::Packet packet;
  packet.bth.opcode = segment.opcode;
  packet.bth.solicited = segment.is_last && (wr.flags & kSendSolicited) != 0;
  packet.bth.mig_req = !shard.config.is_rxe;
  packet.bth.pad_count = wire::pad_count(segment.length);
  packet.bth.destination_qp = qp.attr.destination_qp;
  packet.bth.ack_req = needs_ack(shard, qp, segment);
  packet.bth.psn = segment.psn;
  packet.imm.value = wr.immediate;
  packet.ieth.rkey = wr.invalidate_rkey;
  if (qp.is_datagram()) {
    packet.bth.destination_qp = QpNum{wr.remote_qpn & 0xff'ffff};
    packet.deth = {(wr.remote_qkey & kOwnQkeyFlag) != 0 ? qp.attr.qkey : wr.remote_qkey, qp.number};
  } else if (record.is_atomic()) {
    const bool is_swap = record.opcode == WrOpcode::kAtomicCmpAndSwp;
    packet.atomic = {wr.remote_va, wr.rkey, is_swap ? wr.swap : wr.compare_add,
                     is_swap ? wr.compare_add : 0};
  } else if (record.opcode == WrOpcode::kFlush) {
    packet.feth = {wr.flush.type, wr.flush.level};
    packet.reth = {wr.remote_va, wr.rkey, wr.flush.length};
  } else {
    const std::uint64_t skip = record.is_read() ? segment.offset : 0;
    const std::uint64_t asked =
        record.is_read() ? std::uint64_t{segment.psn_count} * qp.path_mtu : kMaxMessageBytes;
    packet.reth = {wr.remote_va + skip, wr.rkey,
                   static_cast<std::uint32_t>(std::min(record.length - skip, asked))};
  }
  return packet;
}

// Payload from inline data or the SGEs. False: the request failed.
bool plan_payload(Shard& shard, Qp& qp, SendRecord& record, const SendWorkRequest& wr,
                  const Segment& segment, FramePlan& plan) {
  plan.first_move = shard.move_count;
  plan.move_count = 0;
  plan.direct = nullptr;
  plan.is_payload_ready = segment.length == 0;
  if (segment.length == 0) {
    return true;
  }
  if ((wr.flags & kSendInline) != 0) {
    std::memcpy(plan.payload, wr.inline_data.data() + segment.offset, segment.length);
    plan.is_payload_ready = true;
    return true;
  }
  const SgePlan sges =
      plan_sges(shard, qp.pd, std::span(wr.sges).first(wr.sge_count),
                {segment.offset, segment.length}, 0, memory::Direction::kFromClient, plan.payload);
  if (sges.fault != memory::MrFault::kNone) {
    record.failure = WcStatus::kLocProtErr;
    return false;
  }
  plan.direct = sges.direct;
  plan.move_count = shard.move_count - plan.first_move;
  return true;
}

void advance(Shard& shard, Qp& qp, SendRecord& record, const Segment& segment, Time now) {
  const bool is_again = distance(segment.psn, qp.sent_psn) > 0;
  if (is_again) {
    shard.counters.add(Counter::retransmitted_packets);
    ++qp.stats.retransmitted_packets;
  }
  const Psn past = segment.psn + static_cast<std::int32_t>(segment.psn_count);
  if (record.is_read()) record.requested = qp.tx_packet + segment.psn_count;
  if (distance(qp.sent_psn, past) > 0) qp.sent_psn = past;
  if (segment.is_last) {
    qp.tx_record = record.next;
    qp.tx_packet = 0;
  } else {
    qp.tx_packet += segment.psn_count;
  }
  start_ack_timer(shard, qp, now);
}

// What was answered or acknowledged since the QP went back is not sent again.
void skip_what_is_done(Shard& shard, Qp& qp) {
  while (qp.tx_record != kNoIndex) {
    const SendRecord& record = shard.records[qp.tx_record];
    if (record.failure != WcStatus::kSuccess) return;
    if (!record.needs_response() && !record.is_local()) {
      const std::int32_t done = distance(record.first_psn, qp.unacked_psn);
      if (done > static_cast<std::int32_t>(qp.tx_packet)) {
        qp.tx_packet = static_cast<std::uint32_t>(done);
      }
      return;
    }
    if (record.needs_response() && !record.is_answered()) {
      qp.tx_packet = std::max(qp.tx_packet, record.received);
      return;
    }
    qp.tx_record = record.next;
    qp.tx_packet = 0;
  }
}

// The headers below the BTH, or null: the address handle is not the QP's to use.
const wire::PathTemplate* path_of(const Shard& shard, const Qp& qp, const SendWorkRequest& wr) {
  if (!qp.is_datagram()) return &qp.path;
  const AddressHandle* ah = find_address_handle(shard, qp, wr.ah_number);
  return ah != nullptr ? &ah->path : nullptr;
}

bool is_window_open(const Shard& shard, const Qp& qp, const SendRecord& record) {
  // Limited by max_rd_atomic; a long READ asks for more when it has what it asked for.
  if (record.needs_response()) return qp.tx_packet <= record.received;
  const Psn psn = record.first_psn + static_cast<std::int32_t>(qp.tx_packet);
  const std::int32_t outstanding = distance(qp.unacked_psn, psn);
  return outstanding < static_cast<std::int32_t>(shard.config.max_unacked_packets);
}

}  // namespace

bool can_send(const Shard& shard, const Qp& qp) {
  if (!is_transferring_state(qp.state) || is_timer_set(qp, TimerKind::kRnr) ||
      is_timer_set(qp, TimerKind::kBegin)) {
    return false;
  }
  if (qp.tx_record == kNoIndex) return qp.state == QpState::kRts && qp.sq_next != qp.sq_published;
  const SendRecord& record = shard.records[qp.tx_record];
  return record.failure == WcStatus::kSuccess && is_window_open(shard, qp, record);
}

void on_doorbell(Shard& shard, Qp& qp, Time now) {
  const bool is_flushing = qp.state == QpState::kErr || qp.state == QpState::kSqe;
  if (is_flushing || is_transferring_state(qp.state)) {
    qp.sq_published = qp.sq_next + shard.queues.available(qp.send_ring, qp.sq_next);
  }
  if (is_flushing) {
    // Flushing is the way work requests posted in an error state end.
    set_timer(shard, qp, TimerKind::kFlush, now);
  } else if (can_send(shard, qp)) {
    schedule(shard, qp);
  }
}

Planned plan_request(Shard& shard, Qp& qp, Time now, std::byte* payload, FramePlan& plan) {
  skip_what_is_done(shard, qp);
  if (!can_send(shard, qp)) return Planned::kNothing;
  if (qp.tx_record == kNoIndex && !begin_next(shard, qp, now)) return Planned::kNothing;
  SendRecord& record = shard.records[qp.tx_record];
  if (!is_window_open(shard, qp, record)) return Planned::kNothing;
  const SendWorkRequest* wr = read_begun(shard, qp, record);
  plan.path = wr != nullptr ? path_of(shard, qp, *wr) : nullptr;
  if (plan.path == nullptr) {
    record.failure = WcStatus::kLocQpOpErr;
    settle_head(shard, qp, now);
    return Planned::kNothing;
  }
  const Segment segment = next_segment(qp, record);
  plan.kind = FramePlan::Kind::kRequest;
  plan.qp = shard.index_of(qp);
  plan.record = qp.tx_record;
  plan.wqe_index = record.wqe_index;
  plan.payload = payload;
  plan.payload_bytes = segment.length;
  plan.psn = segment.psn;
  if (!plan_payload(shard, qp, record, *wr, segment, plan)) {
    settle_head(shard, qp, now);
    return Planned::kNothing;
  }
  const wire::Packet packet = transport_headers(shard, qp, record, *wr, segment);
  plan.header_bytes =
      static_cast<std::uint16_t>(wire::write_headers(*plan.path, packet, segment.length, payload));
  qp.packets_since_ack_req = packet.bth.ack_req ? 0 : qp.packets_since_ack_req + 1;
  advance(shard, qp, record, segment, now);
  return Planned::kFrame;
}

void on_request_retracted(Shard& shard, Qp& qp, const FramePlan& plan, Time now) {
  if (qp.state == QpState::kErr || qp.state == QpState::kReset) return;
  for (std::uint32_t i = qp.record_head; i != kNoIndex; i = shard.records[i].next) {
    SendRecord& record = shard.records[i];
    if (i != plan.record || record.wqe_index != plan.wqe_index) continue;
    record.failure = WcStatus::kLocProtErr;
    qp.tx_record = i;
    settle_head(shard, qp, now);
    return;
  }
}

}  // namespace rocemu::transport
