#include "dataplane/transport/responder.h"

#include <algorithm>

#include "dataplane/memory/moves.h"
#include "dataplane/transport/classify.h"
#include "dataplane/transport/completion.h"
#include "dataplane/transport/incoming_payload.h"
#include "dataplane/transport/placement.h"
#include "dataplane/transport/receive_queue.h"
#include "dataplane/transport/resources.h"
#include "dataplane/transport/responder_steps.h"
#include "dataplane/transport/unreliable_responder.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

constexpr std::uint32_t kMsnMask = 0xff'ffff;

void schedule_ack(Shard& shard, Qp& qp) {
  if (qp.pending_response == PendingResponse::kNone) qp.pending_response = PendingResponse::kAck;
  schedule(shard, qp);
}

void schedule_nak(Shard& shard, Qp& qp, std::uint8_t syndrome, Psn psn) {
  qp.pending_response = PendingResponse::kNak;
  qp.nak_syndrome = syndrome;
  qp.nak_psn = psn;
  ++qp.stats.naks_sent;
  schedule(shard, qp);
}

AsyncEventType event_of(wire::NakCode code) {
  if (code == wire::NakCode::kRemoteAccessError) return AsyncEventType::kQpAccessError;
  if (code == wire::NakCode::kRemoteOperationalError) return AsyncEventType::kQpFatal;
  return AsyncEventType::kQpRequestError;
}

// A responder error that stops the QP (9.9.3): the requester gets the NAK, behind the responses to
// what it asked for before; the program gets the event unless a receive says it.
void stop(Shard& shard, Qp& qp, wire::NakCode code, Psn psn, Time now,
          const AsyncEventType* cause) {
  if (code == wire::NakCode::kRemoteAccessError) {
    shard.counters.add(Counter::resp_remote_access_errors);
  }
  schedule_nak(shard, qp, wire::make_nak_syndrome(code), psn);
  cancel_due_after(shard, qp, psn);
  qp.has_refused = true;
  enter_error(shard, qp, now, cause);
}

// As refuse(), and the receive in use ends in error.
DropReason refuse_receive(Shard& shard, Qp& qp, WcStatus status, wire::NakCode code, Psn psn,
                          Time now) {
  commit_for(shard, qp, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  if (status == WcStatus::kLocLenErr) shard.counters.add(Counter::resp_local_length_error);
  fail_receive(shard, qp, status, now);
  stop(shard, qp, code, psn, now, nullptr);
  return DropReason::none;
}

// A response cannot be made: its memory is gone. The NAK takes the place of this packet.
void refuse_response(Shard& shard, Qp& qp, wire::NakCode code, Psn psn, Time now) {
  if (qp.state == QpState::kReset || (qp.state == QpState::kErr && !qp.has_refused)) return;
  cancel_due(shard, qp);
  const AsyncEventType cause = event_of(code);
  stop(shard, qp, code, psn, now, &cause);
}

DropReason refuse_not_ready(Shard& shard, Qp& qp, Psn psn) {
  shard.counters.add(Counter::out_of_buffer);
  schedule_nak(shard, qp, wire::make_rnr_syndrome(qp.attr.min_rnr_timer), psn);
  // What follows is dropped until this packet comes again; rxe reports a sequence error for it.
  qp.is_nak_sent = !shard.config.is_rxe;
  return DropReason::none;
}

DropReason on_send(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::OpcodeInfo& info = packet.info();
  // Before the receive is read: a commit may end others, and this QP.
  reserve_packet(shard, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  if (!has_receive(shard, qp)) return refuse_not_ready(shard, qp, psn);
  if (info.starts_message()) qp.incoming_offset = 0;
  const RecvWorkRequest& wr = use_receive(shard, qp);
  if (wr.is_malformed) {
    return refuse_receive(shard, qp, WcStatus::kLocQpOpErr, wire::NakCode::kRemoteOperationalError,
                          psn, now);
  }
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  if (std::uint64_t{qp.incoming_offset} + bytes > wr.length) {
    return refuse_receive(shard, qp, WcStatus::kLocLenErr,
                          shard.config.is_rxe ? wire::NakCode::kRemoteOperationalError
                                              : wire::NakCode::kInvalidRequest,
                          psn, now);
  }
  const std::uint32_t first_move = shard.move_count;
  if (!plan_into_receive(shard, qp, wr, qp.incoming_offset, packet.payload)) {
    return refuse_receive(shard, qp, WcStatus::kLocProtErr, wire::NakCode::kRemoteOperationalError,
                          psn, now);
  }
  if (info.has(wire::kHasIeth) && !shard.regions.invalidate(packet.ieth.rkey, {qp.pd, qp.number})) {
    shard.counters.add(Counter::key_violations);
    shard.move_count = first_move;
    return refuse_receive(shard, qp, WcStatus::kRemInvReqErr, wire::NakCode::kRemoteAccessError,
                          psn, now);
  }
  Action& action = add_request_action(shard, qp, packet, first_move);
  qp.incoming_offset += bytes;
  accept_request(shard, qp, packet, 1);
  if (info.ends_message()) {
    action.completes = true;
    action.completion =
        receive_completion(qp, packet, wr.wr_id, qp.incoming_offset, WcOpcode::kRecv);
    end_receive(shard, qp);
  }
  return DropReason::none;
}

DropReason on_write(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::OpcodeInfo& info = packet.info();
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  if ((qp.attr.access & memory::kAccessRemoteWrite) == 0) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  if (info.starts_message()) {
    shard.counters.add(Counter::rx_write_requests);
    if (packet.reth.dma_length > kMaxMessageBytes) {
      return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
    }
    if (!open_write(shard, qp, packet.reth)) {
      shard.counters.add(Counter::key_violations);
      return refuse(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
    }
  }
  const std::uint64_t end = std::uint64_t{qp.incoming_offset} + bytes;
  if (info.ends_message() ? end != qp.write_length : end >= qp.write_length) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  reserve_packet(shard, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  const bool takes_receive = info.has(wire::kHasImmDt);
  if (takes_receive && !has_receive(shard, qp)) return refuse_not_ready(shard, qp, psn);
  const std::uint32_t first_move = shard.move_count;
  if (!plan_into_write(shard, qp, packet.payload)) {
    shard.counters.add(Counter::key_violations);
    return refuse(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
  }
  Action& action = add_request_action(shard, qp, packet, first_move);
  qp.incoming_offset += bytes;
  accept_request(shard, qp, packet, 1);
  if (takes_receive) {
    action.completes = true;
    // Only its wr_id is used: an immediate scatters nothing.
    action.completion = receive_completion(qp, packet, use_receive(shard, qp).wr_id,
                                           qp.write_length, WcOpcode::kRecvRdmaWithImm);
    end_receive(shard, qp);
  }
  return DropReason::none;
}

DropReason on_read(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::Reth& reth = packet.reth;
  shard.counters.add(Counter::rx_read_requests);
  if ((qp.attr.access & memory::kAccessRemoteRead) == 0 || reth.dma_length > kMaxMessageBytes ||
      qp.attr.max_dest_rd_atomic == 0) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  if (reth.dma_length != 0 &&
      lookup_remote(shard, qp, reth.rkey, reth.va, reth.dma_length, memory::kAccessRemoteRead)
              .fault != memory::MrFault::kNone) {
    shard.counters.add(Counter::key_violations);
    return refuse(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
  }
  const MakeResult made = make_resource(shard, qp);
  if (made.index == kNoIndex) {
    if (made.is_pool_empty) return DropReason::resources_exhausted;
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  ResponderResource& resource = shard.resources[made.index];
  resource.first_psn = psn;
  resource.psn_count = read_packets(reth.dma_length, qp.path_mtu);
  resource.rkey = reth.rkey;
  resource.va = reth.va;
  resource.length = reth.dma_length;
  accept_request(shard, qp, packet, resource.psn_count);
  resource.msn = qp.msn;
  make_due(shard, qp, resource);
  return DropReason::none;
}

DropReason on_atomic(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::AtomicEth& eth = packet.atomic;
  shard.counters.add(Counter::rx_atomic_requests);
  if ((qp.attr.access & memory::kAccessRemoteAtomic) == 0 || (eth.va & 7) != 0 ||
      qp.attr.max_dest_rd_atomic == 0) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  const memory::MrView view =
      lookup_remote(shard, qp, eth.rkey, eth.va, 8, memory::kAccessRemoteAtomic);
  if (view.fault != memory::MrFault::kNone) {
    shard.counters.add(Counter::key_violations);
    return refuse(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
  }
  // Aligned for the peer is not aligned here when the addresses count from another beginning.
  if ((view.client_va & 7) != 0) return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  commit_moves(shard, now);  // earlier WRITEs of any QP come before
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  const MakeResult made = make_resource(shard, qp);
  if (made.index == kNoIndex) {
    if (made.is_pool_empty) return DropReason::resources_exhausted;
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  const bool is_swap = packet.info().operation == wire::Operation::kCompareSwap;
  memory::AtomicMove op{
      .space = view.space,
      .kind = is_swap ? memory::AtomicKind::kCompareSwap : memory::AtomicKind::kFetchAdd,
      .client_va = view.client_va,
      .direct = memory::is_direct(view, 8) ? memory::direct_at(view) : nullptr,
      .compare = eth.compare,
      .swap_or_add = eth.swap_or_add};
  shard.memory.atomic(op);
  if (op.status != memory::MoveStatus::kDone) {
    shard.counters.add(Counter::memory_faults);
    drop_newest_resource(shard, qp);
    return refuse(shard, qp, wire::NakCode::kRemoteOperationalError, psn, now);
  }
  ResponderResource& resource = shard.resources[made.index];
  resource.first_psn = psn;
  resource.psn_count = 1;
  resource.kind = ResponderResource::Kind::kAtomic;
  resource.original = op.original;
  accept_request(shard, qp, packet, 1);
  shard.counters.add(Counter::rx_payload_bytes, 8);
  qp.stats.rx_payload_bytes += 8;
  resource.msn = qp.msn;
  make_due(shard, qp, resource);
  return DropReason::none;
}

bool is_placement(wire::Operation operation) {
  return operation == wire::Operation::kFlush || operation == wire::Operation::kAtomicWrite;
}

DropReason on_duplicate(Shard& shard, Qp& qp, const wire::Packet& packet) {
  shard.counters.add(Counter::duplicate_request);
  const wire::Operation operation = packet.info().operation;
  if (operation == wire::Operation::kReadRequest) {
    return replay_read(shard, qp, packet) ? DropReason::none : DropReason::invalid_duplicate;
  }
  const bool is_atomic =
      operation == wire::Operation::kCompareSwap || operation == wire::Operation::kFetchAdd;
  if (is_atomic || is_placement(operation)) {
    const auto kind =
        is_atomic ? ResponderResource::Kind::kAtomic : ResponderResource::Kind::kPlacement;
    return replay_result(shard, qp, packet, kind) ? DropReason::none
                                                  : DropReason::invalid_duplicate;
  }
  // Whatever was executed is acknowledged again, up to the newest (C9-105).
  schedule_ack(shard, qp);
  return DropReason::none;
}

// One NAK a gap (9.7.5.2.2).
void report_gap(Shard& shard, Qp& qp) {
  schedule_nak(shard, qp, wire::make_nak_syndrome(wire::NakCode::kPsnSequenceError),
               qp.expected_psn);
  qp.is_nak_sent = true;
}

DropReason on_out_of_sequence(Shard& shard, Qp& qp) {
  shard.counters.add(Counter::out_of_sequence);
  if (qp.is_nak_sent) return DropReason::out_of_sequence_dropped;
  if (qp.pending_response == PendingResponse::kNak) {
    // An RNR NAK of a responder like rxe waits to be sent: the sequence NAK follows it.
    qp.owes_sequence_nak = true;
    return DropReason::out_of_sequence_dropped;
  }
  report_gap(shard, qp);
  return DropReason::out_of_sequence_dropped;
}

DropReason execute(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  switch (packet.info().operation) {
    case wire::Operation::kSend:
      return on_send(shard, qp, packet, now);
    case wire::Operation::kWrite:
      return on_write(shard, qp, packet, now);
    case wire::Operation::kReadRequest:
      return on_read(shard, qp, packet, now);
    case wire::Operation::kCompareSwap:
    case wire::Operation::kFetchAdd:
      return on_atomic(shard, qp, packet, now);
    case wire::Operation::kFlush:
      return on_flush(shard, qp, packet, now);
    case wire::Operation::kAtomicWrite:
      return on_atomic_write(shard, qp, packet, now);
    default:
      return DropReason::unknown_opcode;  // classify_request lets no other through
  }
}

// Others are answered by a response of their own.
bool is_acknowledged(wire::Operation operation) {
  return operation == wire::Operation::kSend || operation == wire::Operation::kWrite;
}

wire::Packet response_headers(const Shard& shard, const Qp& qp, wire::Opcode opcode, Psn psn) {
  wire::Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.mig_req = !shard.config.is_rxe;
  packet.bth.destination_qp = qp.attr.destination_qp;
  packet.bth.psn = psn;
  return packet;
}

void finish_plan(Shard& shard, const Qp& qp, const wire::Packet& packet, std::uint32_t bytes,
                 std::byte* payload, FramePlan& plan) {
  plan.kind = FramePlan::Kind::kResponse;
  plan.qp = shard.index_of(qp);
  plan.record = kNoIndex;
  plan.path = &qp.path;
  plan.payload = payload;
  plan.payload_bytes = bytes;
  plan.psn = packet.bth.psn;
  plan.header_bytes =
      static_cast<std::uint16_t>(wire::write_headers(qp.path, packet, bytes, payload));
}

void plan_acknowledge(Shard& shard, Qp& qp, std::byte* payload, FramePlan& plan) {
  const bool is_nak = qp.pending_response == PendingResponse::kNak;
  wire::Packet packet =
      response_headers(shard, qp, wire::Opcode::kRcAcknowledge, is_nak ? qp.nak_psn : qp.acked_psn);
  packet.aeth = {is_nak ? qp.nak_syndrome : wire::make_ack_syndrome(wire::kNoCredits), qp.msn};
  qp.pending_response = PendingResponse::kNone;
  shard.counters.add(is_nak ? Counter::naks_sent : Counter::acks_sent);
  if (is_nak && wire::aeth_class(qp.nak_syndrome) == wire::AethClass::kRnrNak) {
    shard.counters.add(Counter::rnr_naks_sent);
  }
  finish_plan(shard, qp, packet, 0, payload, plan);
  if (qp.owes_sequence_nak) {
    qp.owes_sequence_nak = false;
    report_gap(shard, qp);
  }
}

void plan_atomic_result(Shard& shard, Qp& qp, const ResponderResource& resource, std::byte* payload,
                        FramePlan& plan) {
  wire::Packet packet =
      response_headers(shard, qp, wire::Opcode::kRcAtomicAcknowledge, resource.first_psn);
  packet.aeth = {wire::make_ack_syndrome(wire::kNoCredits), resource.msn};
  packet.atomic_ack = {resource.original};
  finish_plan(shard, qp, packet, 0, payload, plan);
}

wire::Opcode read_response_opcode(bool is_first, bool is_last) {
  if (is_first) {
    return is_last ? wire::Opcode::kRcReadResponseOnly : wire::Opcode::kRcReadResponseFirst;
  }
  return is_last ? wire::Opcode::kRcReadResponseLast : wire::Opcode::kRcReadResponseMiddle;
}

// The region is looked up for every packet: it may be gone since the request came.
bool plan_read_response(Shard& shard, Qp& qp, const ResponderResource& resource, std::byte* payload,
                        FramePlan& plan) {
  const std::uint64_t offset = std::uint64_t{resource.next_packet} * qp.path_mtu;
  const auto bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(qp.path_mtu, resource.length - offset));
  if (bytes != 0) {
    const memory::MrView view = lookup_remote(shard, qp, resource.rkey, resource.va + offset, bytes,
                                              memory::kAccessRemoteRead);
    if (view.fault != memory::MrFault::kNone) return false;
    if (memory::is_direct(view, bytes)) {
      plan.direct = memory::direct_at(view);
    } else {
      memory::split_moves(
          view, memory::Direction::kFromClient, payload, bytes,
          [&shard](const memory::Move& move) { shard.moves[shard.move_count++] = move; });
      plan.move_count = shard.move_count - plan.first_move;
    }
  }
  plan.is_payload_ready = bytes == 0;
  const bool is_last = resource.next_packet + 1 == resource.end_packet;
  wire::Packet packet =
      response_headers(shard, qp, read_response_opcode(resource.starts_anew, is_last),
                       resource.first_psn + static_cast<std::int32_t>(resource.next_packet));
  packet.bth.pad_count = wire::pad_count(bytes);
  packet.aeth = {wire::make_ack_syndrome(wire::kNoCredits), resource.msn};
  finish_plan(shard, qp, packet, bytes, payload, plan);
  return true;
}

}  // namespace

void accept_request(Shard& shard, Qp& qp, const wire::Packet& packet, std::uint32_t psn_count) {
  qp.expected_psn = packet.bth.psn + static_cast<std::int32_t>(psn_count);
  qp.acked_psn = qp.expected_psn.prev();
  qp.is_nak_sent = qp.owes_sequence_nak = false;
  // A NAK that was not sent yet would ask for this very packet.
  if (qp.pending_response == PendingResponse::kNak) qp.pending_response = PendingResponse::kAck;
  qp.stats.rx_payload_bytes += packet.payload.size();
  shard.counters.add(Counter::rx_payload_bytes, packet.payload.size());
  const wire::OpcodeInfo& info = packet.info();
  if (info.ends_message()) {
    qp.msn = (qp.msn + 1) & kMsnMask;
    qp.incoming = Incoming::kNone;
  } else {
    qp.incoming = info.operation == wire::Operation::kSend ? Incoming::kSend : Incoming::kWrite;
  }
}

DropReason refuse(Shard& shard, Qp& qp, wire::NakCode code, Psn psn, Time now) {
  commit_for(shard, qp, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  const AsyncEventType cause = event_of(code);
  stop(shard, qp, code, psn, now, &cause);
  return DropReason::none;
}

DropReason on_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  switch (qp.type) {
    case QpType::kRc:
      break;
    case QpType::kUc:
      return on_uc_request(shard, qp, packet, now);
    case QpType::kUd:
    case QpType::kGsi:
      return on_ud_request(shard, qp, packet, now);
  }
  if (qp.state == QpState::kRtr && !qp.is_communication_established) {
    qp.is_communication_established = true;
    raise_event(shard, qp, AsyncEventType::kCommEstablished);
  }
  const Verdict verdict = classify_request({
      .incoming = qp.incoming,
      .relation = psn_relation(qp.expected_psn, packet.bth.psn),
      .opcode = packet.bth.opcode,
      .payload_bytes = static_cast<std::uint32_t>(packet.payload.size()),
      .pad_count = packet.bth.pad_count,
      .path_mtu = qp.path_mtu,
  });
  DropReason reason = DropReason::none;
  switch (verdict) {
    case Verdict::kExecute:
      reason = execute(shard, qp, packet, now);
      break;
    case Verdict::kDuplicate:
      return on_duplicate(shard, qp, packet);
    case Verdict::kOutOfSequence:
      return on_out_of_sequence(shard, qp);
    case Verdict::kInvalidSequence:
    case Verdict::kUnsupported:
    case Verdict::kInvalidLength:
      return refuse(shard, qp, wire::NakCode::kInvalidRequest, packet.bth.psn, now);
  }
  const bool is_executed = qp.expected_psn != packet.bth.psn;
  if (reason == DropReason::none && is_executed && packet.bth.ack_req &&
      qp.state != QpState::kErr && is_acknowledged(packet.info().operation)) {
    schedule_ack(shard, qp);
  }
  return reason;
}

void on_request_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now) {
  if (qp.state == QpState::kErr || qp.state == QpState::kReset) return;
  if (!qp.is_reliable()) return on_unreliable_placed(shard, qp, action, is_done, now);
  if (action.completes && is_done) retire_receive(shard, qp, action.completion, now);
  if (is_done) return;
  constexpr auto kCode = wire::NakCode::kRemoteOperationalError;
  const AsyncEventType cause = event_of(kCode);
  // The memory of a receive is the program's own fault, and its completion says so.
  if (action.is_send) fail_receive(shard, qp, WcStatus::kLocProtErr, now);
  stop(shard, qp, kCode, action.psn, now, action.is_send ? nullptr : &cause);
}

Planned plan_response(Shard& shard, Qp& qp, Time now, std::byte* payload, FramePlan& plan) {
  plan.first_move = shard.move_count;
  plan.move_count = 0;
  plan.direct = nullptr;
  plan.is_payload_ready = true;
  if (qp.due_resources != 0) {
    const std::uint32_t index = oldest_due(shard, qp);
    const ResponderResource& resource = shard.resources[index];
    if (resource.kind == ResponderResource::Kind::kAtomic) {
      plan_atomic_result(shard, qp, resource, payload, plan);
    } else if (!plan_read_response(shard, qp, resource, payload, plan)) {
      shard.counters.add(Counter::key_violations);
      const Psn psn = resource.first_psn + static_cast<std::int32_t>(resource.next_packet);
      refuse_response(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
      return Planned::kNothing;
    }
    finish_packet(shard, qp, index);
    return Planned::kFrame;
  }
  if (qp.pending_response == PendingResponse::kNone) return Planned::kNothing;
  plan_acknowledge(shard, qp, payload, plan);
  return Planned::kFrame;
}

void on_response_retracted(Shard& shard, Qp& qp, const FramePlan& plan, Time now) {
  shard.counters.add(Counter::memory_faults);
  refuse_response(shard, qp, wire::NakCode::kRemoteOperationalError, plan.psn, now);
}

}  // namespace rocemu::transport
