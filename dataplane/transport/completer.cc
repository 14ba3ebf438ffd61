#include "dataplane/transport/completer.h"

#include <algorithm>

#include "dataplane/transport/completion.h"
#include "dataplane/transport/recovery.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

// Oldest READ or atomic that waits for its response, or kNoIndex.
std::uint32_t find_unanswered(const Shard& shard, const Qp& qp) {
  for (std::uint32_t i = qp.record_head; i != kNoIndex; i = shard.records[i].next) {
    const SendRecord& record = shard.records[i];
    if (record.needs_response() && !record.is_answered()) return i;
  }
  return kNoIndex;
}

void advance_unacked(Shard& shard, Qp& qp, Psn psn, Time now) {
  if (distance(qp.unacked_psn, psn) <= 0) return;
  qp.unacked_psn = psn;
  note_progress(shard, qp, now);
}

// Everything up to and including `psn` was executed by the peer. Returns false when a READ or
// atomic among it has not been answered: its response is lost, and what follows it is not taken.
bool acknowledge_through(Shard& shard, Qp& qp, Psn psn, Time now) {
  commit_for(shard, qp, now);
  while (qp.record_head != kNoIndex && qp.state != QpState::kErr) {
    const SendRecord& head = shard.records[qp.record_head];
    if (head.failure == WcStatus::kSuccess && head.is_local()) {
      retire_head(shard, qp, WcStatus::kSuccess, now);
      continue;
    }
    if (head.failure != WcStatus::kSuccess || distance(head.first_psn, psn) < 0) break;
    if (head.needs_response() && !head.is_answered()) {
      advance_unacked(shard, qp, head.first_psn + static_cast<std::int32_t>(head.received), now);
      return false;
    }
    if (distance(head.last_psn(), psn) < 0) break;
    const Psn next = head.last_psn().next();
    retire_head(shard, qp, WcStatus::kSuccess, now);
    advance_unacked(shard, qp, next, now);
  }
  advance_unacked(shard, qp, psn.next(), now);
  return true;
}

// A response at `psn` came, and one before it did not (9.7.5.2.5, implied NAK). One gap costs one
// retry: what follows in the same stream of responses names ever later PSNs, and only a stream that
// begins anew, after the request was sent again, shows that this was lost too.
void imply_nak(Shard& shard, Qp& qp, Psn psn, Time now) {
  const std::uint32_t index = find_unanswered(shard, qp);
  if (index == kNoIndex) return;
  const bool is_same_gap = qp.has_implied_nak && distance(qp.implied_psn, psn) > 0;
  qp.has_implied_nak = true;
  qp.implied_psn = psn;
  if (is_same_gap) return;
  shard.counters.add(Counter::implied_nak_seq_err);
  const SendRecord& record = shard.records[index];
  retry_from(shard, qp, record.first_psn + static_cast<std::int32_t>(record.received), now);
}

DropReason on_acknowledge(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  if (!acknowledge_through(shard, qp, packet.bth.psn, now)) {
    imply_nak(shard, qp, packet.bth.psn, now);
  }
  settle_head(shard, qp, now);
  schedule(shard, qp);
  return DropReason::none;
}

WcStatus status_of_nak(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kInvalidRequest:
      return WcStatus::kRemInvReqErr;
    case wire::NakCode::kRemoteAccessError:
      return WcStatus::kRemAccessErr;
    case wire::NakCode::kRemoteOperationalError:
      return WcStatus::kRemOpErr;
    case wire::NakCode::kInvalidRdRequest:
      return WcStatus::kRemInvRdReqErr;
    case wire::NakCode::kPsnSequenceError:
      break;
  }
  return WcStatus::kBadRespErr;
}

void count_nak(Shard& shard, wire::NakCode code) {
  if (code == wire::NakCode::kInvalidRequest) {
    shard.counters.add(Counter::req_remote_invalid_request);
  } else if (code == wire::NakCode::kRemoteAccessError) {
    shard.counters.add(Counter::req_remote_access_errors);
  }
}

// All before the NAK's PSN is acknowledged by it (9.7.5.2.4).
DropReason on_nak(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  ++qp.stats.naks_received;
  const bool is_rnr = wire::aeth_class(packet.aeth.syndrome) == wire::AethClass::kRnrNak;
  // A READ may be refused in the middle of its responses: then its own PSNs before are no
  // acknowledgement of it.
  const std::uint32_t refused = find_record(shard, qp, psn);
  const bool is_of_read = refused != kNoIndex && shard.records[refused].needs_response();
  const Psn executed = is_of_read ? shard.records[refused].first_psn.prev() : psn.prev();
  if (!acknowledge_through(shard, qp, executed, now)) {
    imply_nak(shard, qp, psn, now);
    return DropReason::none;
  }
  settle_head(shard, qp, now);
  if (qp.state == QpState::kErr || qp.record_head == kNoIndex) return DropReason::none;
  if (is_rnr) {
    shard.counters.add(Counter::rnr_nak_retry_err);
    if (is_timer_set(qp, TimerKind::kRnr)) return DropReason::stale_response;
    wait_rnr(shard, qp, psn, wire::aeth_value(packet.aeth.syndrome), now);
    return DropReason::none;
  }
  const auto code = static_cast<wire::NakCode>(wire::aeth_value(packet.aeth.syndrome));
  if (code == wire::NakCode::kPsnSequenceError) {
    shard.counters.add(Counter::packet_seq_err);
    // rxe reports the packets behind the one that it was not ready for: that one comes again when
    // the RNR timer ends.
    if (is_timer_set(qp, TimerKind::kRnr)) return DropReason::stale_response;
    retry_from(shard, qp, psn, now);
    return DropReason::none;
  }
  count_nak(shard, code);
  fail_head(shard, qp, status_of_nak(code), now);
  return DropReason::none;
}

// Marks the request as failed; it ends when all before it are done.
DropReason fail_record(Shard& shard, Qp& qp, SendRecord& record, WcStatus status, Time now) {
  commit_for(shard, qp, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  record.failure = status;
  settle_head(shard, qp, now);
  return DropReason::bad_response;
}

bool fits_read(const wire::Packet& packet, const Qp& qp, const SendRecord& record) {
  const bool ends_request = record.received + 1 == record.requested;
  if (packet.info().ends_message() != ends_request) return false;
  const std::uint64_t offset = std::uint64_t{record.received} * qp.path_mtu;
  const std::uint64_t expected = std::min<std::uint64_t>(record.length - offset, qp.path_mtu);
  if (packet.payload.size() != expected) return false;
  return !packet.info().has(wire::kHasAeth) ||
         wire::aeth_class(packet.aeth.syndrome) == wire::AethClass::kAck;
}

// Plans the placement of `bytes` at `offset` of the request's SGEs; else why the request fails.
WcStatus plan_placement(Shard& shard, Qp& qp, const SendRecord& record,
                        std::span<const std::byte> bytes, SgeRange range) {
  const SendWorkRequest* wr = read_begun(shard, qp, record);
  if (wr == nullptr) return WcStatus::kLocQpOpErr;
  // The frame outlives the batch: actions run before on_frames returns.
  auto* local = const_cast<std::byte*>(bytes.data());
  const SgePlan plan = plan_sges(shard, qp.pd, std::span(wr->sges).first(wr->sge_count), range,
                                 memory::kAccessLocalWrite, memory::Direction::kToClient, local);
  if (plan.fault != memory::MrFault::kNone) return WcStatus::kLocProtErr;
  if (plan.direct != nullptr && range.length != 0) {
    shard.moves[shard.move_count++] = {.space = SpaceId{},
                                       .direction = memory::Direction::kToClient,
                                       .status = memory::MoveStatus::kPending,
                                       .length = range.length,
                                       .client_va = 0,
                                       .direct = plan.direct,
                                       .local = local};
  }
  return WcStatus::kSuccess;
}

void add_action(Shard& shard, Qp& qp, std::uint32_t record, std::uint32_t first_move,
                bool completes) {
  Action& action = shard.actions[shard.action_count++];
  action.kind = Action::Kind::kReadPlaced;
  action.completes = completes;
  action.qp = shard.index_of(qp);
  action.record = record;
  action.first_move = first_move;
  action.move_count = shard.move_count - first_move;
  ++qp.uncommitted;
}

// FLUSH and ATOMIC WRITE are answered by a READ response without bytes (A19).
DropReason on_placement_response(Shard& shard, Qp& qp, std::uint32_t index,
                                 const wire::Packet& packet, Time now) {
  SendRecord& record = shard.records[index];
  if (packet.bth.opcode != wire::Opcode::kRcReadResponseOnly || !packet.payload.empty() ||
      wire::aeth_class(packet.aeth.syndrome) != wire::AethClass::kAck) {
    return fail_record(shard, qp, record, WcStatus::kBadRespErr, now);
  }
  reserve_packet(shard, now);
  record.received = 1;
  add_action(shard, qp, index, shard.move_count, true);
  advance_unacked(shard, qp, packet.bth.psn.next(), now);
  return DropReason::none;
}

DropReason on_read_response(Shard& shard, Qp& qp, std::uint32_t index, const wire::Packet& packet,
                            Time now) {
  SendRecord& record = shard.records[index];
  if (!record.is_read() || !fits_read(packet, qp, record)) {
    return fail_record(shard, qp, record, WcStatus::kBadRespErr, now);
  }
  reserve_packet(shard, now);
  const std::uint32_t first_move = shard.move_count;
  const SgeRange range{std::uint64_t{record.received} * qp.path_mtu,
                       static_cast<std::uint32_t>(packet.payload.size())};
  if (const WcStatus status = plan_placement(shard, qp, record, packet.payload, range);
      status != WcStatus::kSuccess) {
    return fail_record(shard, qp, record, status, now);
  }
  ++record.received;
  shard.counters.add(Counter::rx_payload_bytes, packet.payload.size());
  qp.stats.rx_payload_bytes += packet.payload.size();
  add_action(shard, qp, index, first_move, record.is_answered());
  advance_unacked(shard, qp, packet.bth.psn.next(), now);
  return DropReason::none;
}

DropReason on_atomic_response(Shard& shard, Qp& qp, std::uint32_t index, const wire::Packet& packet,
                              Time now) {
  SendRecord& record = shard.records[index];
  if (!record.is_atomic() || wire::aeth_class(packet.aeth.syndrome) != wire::AethClass::kAck) {
    return fail_record(shard, qp, record, WcStatus::kBadRespErr, now);
  }
  reserve_packet(shard, now);
  const std::uint32_t first_move = shard.move_count;
  Action& action = shard.actions[shard.action_count];
  action.word = packet.atomic_ack.original;
  if (const WcStatus status = plan_placement(
          shard, qp, record, std::as_bytes(std::span(&action.word, 1)), {0, sizeof action.word});
      status != WcStatus::kSuccess) {
    return fail_record(shard, qp, record, status, now);
  }
  record.received = 1;
  shard.counters.add(Counter::rx_payload_bytes, sizeof action.word);
  qp.stats.rx_payload_bytes += sizeof action.word;
  add_action(shard, qp, index, first_move, true);
  advance_unacked(shard, qp, packet.bth.psn.next(), now);
  return DropReason::none;
}

// True when a request before `index` waits for more than the commit of its response.
bool has_unacknowledged(const Shard& shard, const Qp& qp, std::uint32_t index) {
  for (std::uint32_t i = qp.record_head; i != index; i = shard.records[i].next) {
    if (!shard.records[i].needs_response()) return true;
  }
  return false;
}

// A READ response or atomic acknowledgement: belongs to the oldest unanswered request or shows that
// one is lost.
DropReason on_data_response(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  std::uint32_t index = find_unanswered(shard, qp);
  if (index == kNoIndex) return DropReason::ghost_response;
  {
    // The response acknowledges all requests before its own.
    const Psn first = shard.records[index].first_psn;
    if (distance(first, packet.bth.psn) < 0) return DropReason::stale_response;
    if (has_unacknowledged(shard, qp, index)) acknowledge_through(shard, qp, first.prev(), now);
    if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
    index = find_unanswered(shard, qp);
    if (index == kNoIndex) return DropReason::ghost_response;
  }
  const SendRecord& record = shard.records[index];
  if (record.failure != WcStatus::kSuccess) return DropReason::stale_response;
  const Psn expected = record.first_psn + static_cast<std::int32_t>(record.received);
  const std::int32_t ahead = distance(expected, packet.bth.psn);
  if (ahead < 0) return DropReason::stale_response;
  if (ahead > 0) {
    imply_nak(shard, qp, packet.bth.psn, now);
    return DropReason::bad_response;
  }
  schedule(shard, qp);
  if (record.is_placement()) return on_placement_response(shard, qp, index, packet, now);
  return packet.info().operation == wire::Operation::kReadResponse
             ? on_read_response(shard, qp, index, packet, now)
             : on_atomic_response(shard, qp, index, packet, now);
}

}  // namespace

DropReason on_response(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  if (distance(psn, qp.sent_psn) <= 0) return DropReason::ghost_response;
  if (distance(qp.unacked_psn, psn) < 0) return DropReason::stale_response;
  switch (packet.info().operation) {
    case wire::Operation::kAcknowledge:
      return wire::aeth_class(packet.aeth.syndrome) == wire::AethClass::kAck
                 ? on_acknowledge(shard, qp, packet, now)
             : wire::aeth_class(packet.aeth.syndrome) == wire::AethClass::kReserved
                 ? DropReason::bad_response
                 : on_nak(shard, qp, packet, now);
    case wire::Operation::kReadResponse:
    case wire::Operation::kAtomicAcknowledge:
      return on_data_response(shard, qp, packet, now);
    default:
      return DropReason::unknown_opcode;
  }
}

void on_read_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now) {
  // An earlier failure in the batch may have flushed the request.
  if (qp.state == QpState::kErr || qp.state == QpState::kReset) return;
  SendRecord& record = shard.records[action.record];
  if (!is_done) record.failure = WcStatus::kLocProtErr;
  if (action.completes && record.failure == WcStatus::kSuccess) {
    ROCEMU_CHECK(action.record == qp.record_head);
    retire_head(shard, qp, WcStatus::kSuccess, now);
    schedule(shard, qp);
  }
  settle_head(shard, qp, now);
}

void settle_head(Shard& shard, Qp& qp, Time now) {
  if (qp.state == QpState::kErr || qp.state == QpState::kReset) return;
  while (qp.record_head != kNoIndex) {
    const SendRecord& head = shard.records[qp.record_head];
    if (head.failure != WcStatus::kSuccess || !head.is_local()) break;
    retire_head(shard, qp, WcStatus::kSuccess, now);
  }
  if (qp.record_head != kNoIndex) {
    const WcStatus failure = shard.records[qp.record_head].failure;
    if (failure != WcStatus::kSuccess) fail_head(shard, qp, failure, now);
  }
  if (qp.record_head == kNoIndex && qp.is_sq_draining && qp.state == QpState::kSqd) {
    qp.is_sq_draining = false;
    if (qp.attr.sqd_async_notify) raise_event(shard, qp, AsyncEventType::kSqDrained);
  }
}

}  // namespace rocemu::transport
