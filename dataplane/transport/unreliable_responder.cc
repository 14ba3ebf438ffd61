#include "dataplane/transport/unreliable_responder.h"

#include <array>

#include "dataplane/transport/classify.h"
#include "dataplane/transport/completion.h"
#include "dataplane/transport/incoming_payload.h"
#include "dataplane/transport/receive_queue.h"

namespace rocemu::transport {
namespace {

// Service level of a datagram's completion: as drivers of Ethernet devices give it, bit 3 says that
// the lower bits are the kind of network header.
constexpr std::uint8_t service_level_of(wire::RoceKind kind) {
  switch (kind) {
    case wire::RoceKind::kV1:
      return 0x8;
    case wire::RoceKind::kV2Ipv6:
      return 0x9;
    case wire::RoceKind::kV2Ipv4:
      return 0xa;
  }
  return 0;
}

// The message in progress is given up; what it had in use serves the next one.
DropReason drop_message(Qp& qp, const wire::Packet& packet, DropReason reason) {
  qp.incoming = Incoming::kNone;
  qp.expected_psn = packet.bth.psn.next();
  return reason;
}

// The program's own error: the receive says so, and the QP stops (11.6.2).
DropReason stop_with_receive(Shard& shard, Qp& qp, WcStatus status, Time now) {
  commit_for(shard, qp, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  if (status == WcStatus::kLocLenErr) shard.counters.add(Counter::resp_local_length_error);
  fail_receive(shard, qp, status, now);
  enter_error(shard, qp, now);
  return DropReason::none;
}

DropReason refuse_without_receive(Shard& shard, Qp& qp, const wire::Packet& packet) {
  shard.counters.add(Counter::out_of_buffer);
  return drop_message(qp, packet, DropReason::no_receive_buffer);
}

void accept(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  qp.expected_psn = packet.bth.psn.next();
  qp.stats.rx_payload_bytes += packet.payload.size();
  shard.counters.add(Counter::rx_payload_bytes, packet.payload.size());
  if (info.ends_message()) {
    qp.incoming = Incoming::kNone;
  } else {
    qp.incoming = info.operation == wire::Operation::kSend ? Incoming::kSend : Incoming::kWrite;
  }
}

DropReason on_uc_send(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.starts_message()) qp.incoming_offset = 0;
  if (!has_receive(shard, qp)) return refuse_without_receive(shard, qp, packet);
  const RecvWorkRequest& wr = use_receive(shard, qp);
  if (wr.is_malformed) return stop_with_receive(shard, qp, WcStatus::kLocQpOpErr, now);
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  if (std::uint64_t{qp.incoming_offset} + bytes > wr.length) {
    return stop_with_receive(shard, qp, WcStatus::kLocLenErr, now);
  }
  const std::uint64_t wr_id = wr.wr_id;
  const std::uint32_t first_move = shard.move_count;
  if (!plan_into_receive(shard, qp, wr, qp.incoming_offset, packet.payload)) {
    return stop_with_receive(shard, qp, WcStatus::kLocProtErr, now);
  }
  Action& action = add_request_action(shard, qp, packet, first_move);
  qp.incoming_offset += bytes;
  accept(shard, qp, packet);
  if (info.ends_message()) {
    action.completes = true;
    action.completion = receive_completion(qp, packet, wr_id, qp.incoming_offset, WcOpcode::kRecv);
    end_receive(shard, qp);
  }
  return DropReason::none;
}

DropReason on_uc_write(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  if ((qp.attr.access & memory::kAccessRemoteWrite) == 0) {
    return drop_message(qp, packet, DropReason::access_refused);
  }
  if (info.starts_message()) {
    shard.counters.add(Counter::rx_write_requests);
    if (packet.reth.dma_length > kMaxMessageBytes || !open_write(shard, qp, packet.reth)) {
      shard.counters.add(Counter::key_violations);
      return drop_message(qp, packet, DropReason::access_refused);
    }
  }
  const std::uint64_t end = std::uint64_t{qp.incoming_offset} + bytes;
  if (info.ends_message() ? end != qp.write_length : end >= qp.write_length) {
    return drop_message(qp, packet, DropReason::bad_payload_length);
  }
  const bool takes_receive = info.has(wire::kHasImmDt);
  if (takes_receive && !has_receive(shard, qp)) return refuse_without_receive(shard, qp, packet);
  const std::uint32_t first_move = shard.move_count;
  if (!plan_into_write(shard, qp, packet.payload)) {
    shard.counters.add(Counter::key_violations);
    return drop_message(qp, packet, DropReason::access_refused);
  }
  Action& action = add_request_action(shard, qp, packet, first_move);
  qp.incoming_offset += bytes;
  accept(shard, qp, packet);
  if (takes_receive) {
    action.completes = true;
    action.completion = receive_completion(qp, packet, use_receive(shard, qp).wr_id,
                                           qp.write_length, WcOpcode::kRecvRdmaWithImm);
    end_receive(shard, qp);
  }
  return DropReason::none;
}

// The 40 bytes in front of a datagram: an IPv6 header or GRH as received; an IPv4 header stands in
// the last 20 (A17.4.5.1).
bool plan_network_header(Shard& shard, const Qp& qp, const RecvWorkRequest& wr,
                         const wire::Packet& packet) {
  static constexpr std::array<std::byte, kGrhBytes - wire::kIpv4Bytes> kZeros{};
  const std::byte* l3 = packet.payload.data() - packet.header_bytes + packet.l3_offset;
  if (packet.path.kind != wire::RoceKind::kV2Ipv4) {
    return plan_into_receive(shard, qp, wr, 0, {l3, kGrhBytes});
  }
  return plan_into_receive(shard, qp, wr, 0, kZeros) &&
         plan_into_receive(shard, qp, wr, kZeros.size(), {l3, wire::kIpv4Bytes});
}

}  // namespace

DropReason on_uc_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  if (qp.state == QpState::kRtr && !qp.is_communication_established) {
    qp.is_communication_established = true;
    raise_event(shard, qp, AsyncEventType::kCommEstablished);
  }
  reserve_packet(shard, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  const Psn psn = packet.bth.psn;
  const bool is_expected = psn == qp.expected_psn;
  if (!is_expected) shard.counters.add(Counter::out_of_sequence);
  if (packet.info().starts_message()) {
    // Whatever was lost before, a new message begins here (9.8.2.2.1).
    qp.incoming = Incoming::kNone;
  } else if (!is_expected) {
    return drop_message(qp, packet, DropReason::uc_sequence);
  }
  const Verdict verdict = classify_request({
      .incoming = qp.incoming,
      .relation = PsnRelation::kExpected,
      .opcode = packet.bth.opcode,
      .payload_bytes = static_cast<std::uint32_t>(packet.payload.size()),
      .pad_count = packet.bth.pad_count,
      .path_mtu = qp.path_mtu,
  });
  switch (verdict) {
    case Verdict::kExecute:
      break;
    case Verdict::kInvalidLength:
      return drop_message(qp, packet, DropReason::bad_payload_length);
    case Verdict::kInvalidSequence:
    case Verdict::kUnsupported:
    case Verdict::kDuplicate:
    case Verdict::kOutOfSequence:
      return drop_message(qp, packet, DropReason::uc_sequence);
  }
  return packet.info().operation == wire::Operation::kSend ? on_uc_send(shard, qp, packet, now)
                                                           : on_uc_write(shard, qp, packet);
}

DropReason on_ud_request(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  if (packet.deth.qkey != qp.attr.qkey) return DropReason::bad_qkey;
  if (packet.payload.size() > qp.path_mtu) return DropReason::bad_payload_length;
  reserve_packet(shard, now);
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  if (!has_receive(shard, qp)) {
    shard.counters.add(Counter::out_of_buffer);
    return DropReason::no_receive_buffer;
  }
  const RecvWorkRequest& wr = use_receive(shard, qp);
  if (wr.is_malformed) return stop_with_receive(shard, qp, WcStatus::kLocQpOpErr, now);
  const auto bytes = kGrhBytes + static_cast<std::uint32_t>(packet.payload.size());
  if (bytes > wr.length) return stop_with_receive(shard, qp, WcStatus::kLocLenErr, now);
  const std::uint64_t wr_id = wr.wr_id;
  const std::uint32_t first_move = shard.move_count;
  if (!plan_network_header(shard, qp, wr, packet) ||
      !plan_into_receive(shard, qp, wr, kGrhBytes, packet.payload)) {
    shard.move_count = first_move;
    return stop_with_receive(shard, qp, WcStatus::kLocProtErr, now);
  }
  Action& action = add_request_action(shard, qp, packet, first_move);
  accept(shard, qp, packet);
  action.completes = true;
  action.completion = receive_completion(qp, packet, wr_id, bytes, WcOpcode::kRecv);
  action.completion.flags |= kWcGrh;
  action.completion.source_qp = packet.deth.source_qp;
  action.completion.service_level = service_level_of(packet.path.kind);
  end_receive(shard, qp);
  return DropReason::none;
}

void on_unreliable_placed(Shard& shard, Qp& qp, const Action& action, bool is_done, Time now) {
  if (is_done) {
    if (action.completes) retire_receive(shard, qp, action.completion, now);
    return;
  }
  constexpr AsyncEventType kCause = AsyncEventType::kQpFatal;
  if (action.is_send) fail_receive(shard, qp, WcStatus::kLocProtErr, now);
  enter_error(shard, qp, now, action.is_send ? nullptr : &kCause);
}

}  // namespace rocemu::transport
