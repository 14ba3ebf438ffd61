// Output: a batch of frames is planned over the QPs that have something to send, their payload is
// moved in one go, then each frame is finished and handed to the sink in the order of planning. A
// frame whose payload could not be read is taken back, and so is what its QP planned after it.
#include <algorithm>

#include "dataplane/engine/engine_impl.h"
#include "dataplane/transport/completion.h"
#include "dataplane/transport/requester.h"
#include "dataplane/transport/responder.h"
#include "dataplane/transport/unreliable.h"

namespace rocemu::engine {
namespace {

using transport::FramePlan;
using transport::Planned;

bool has_work(const transport::Shard& shard, const transport::Qp& qp) {
  return transport::has_response(qp) || transport::can_send(shard, qp);
}

bool is_payload_moved(const transport::Shard& shard, const FramePlan& plan) {
  const auto moves = std::span(shard.moves).subspan(plan.first_move, plan.move_count);
  return std::ranges::all_of(
      moves, [](const memory::Move& m) { return m.status == memory::MoveStatus::kDone; });
}

}  // namespace

PlanOutcome Engine::Impl::plan_one(Time now, FrameSink& sink, transport::Qp& qp) {
  const auto buffer = sink.allocate(qp.path_mtu + 8);
  if (!buffer) {
    counters.add(Counter::port_xmit_wait);
    return PlanOutcome::kSinkFull;
  }
  Outgoing& out = outgoing[outgoing_count];
  out.buffer = *buffer;
  std::byte* payload = buffer->base + kTxHeadroom;
  // Both have work: they take turns, so that neither direction of a QP starves.
  const bool may_request = transport::can_send(shard, qp);
  const bool is_request = may_request && (qp.is_request_turn || !transport::has_response(qp));
  qp.is_request_turn = !is_request;
  Planned planned = is_request ? transport::plan_request(shard, qp, now, payload, out.plan)
                               : transport::plan_response(shard, qp, now, payload, out.plan);
  if (planned == Planned::kNothing && is_request && transport::has_response(qp)) {
    planned = transport::plan_response(shard, qp, now, payload, out.plan);
  }
  if (planned == Planned::kNothing) {
    sink.discard(*buffer);
    return PlanOutcome::kNothing;
  }
  ++outgoing_count;
  ++qp.stats.tx_packets;
  qp.stats.tx_payload_bytes += out.plan.payload_bytes;
  return PlanOutcome::kPlanned;
}

// Payload in place, copied and summed in one pass, or left where it is and only summed.
wire::Icrc Engine::Impl::place_payload(const FramePlan& plan, bool by_reference, wire::Icrc crc) {
  if (plan.direct == nullptr) return wire::icrc_update(crc, {plan.payload, plan.payload_bytes});
  if (by_reference) return wire::icrc_update(crc, {plan.direct, plan.payload_bytes});
  return wire::icrc_copy(crc, plan.payload, plan.direct, plan.payload_bytes);
}

void Engine::Impl::send(const Outgoing& out, FrameSink& sink) {
  const FramePlan& plan = out.plan;
  const SinkCapabilities sink_can = sink.capabilities();
  std::byte* frame = plan.payload - plan.header_bytes;
  transport::Qp& qp = shard.qps[plan.qp];
  const wire::PathTemplate& path = *plan.path;
  const bool is_v1 = path.kind == wire::RoceKind::kV1;
  // A request that nobody acknowledges ends when its frame is sent: its memory is the program's
  // again.
  const bool by_reference = sink_can.takes_references && plan.direct != nullptr && qp.is_reliable();
  const std::uint8_t pad = wire::pad_count(plan.payload_bytes);
  // With references the trailer stands right behind the headers.
  std::byte* tail = by_reference ? plan.payload : plan.payload + plan.payload_bytes;
  std::fill_n(tail, pad, std::byte{0});
  if (!config.always_icrc && sink_can.elides_icrc) {
    if (plan.direct != nullptr && !by_reference) {
      std::copy_n(plan.direct, plan.payload_bytes, plan.payload);
    }
    wire::store_icrc(tail + pad, 0);
  } else {
    wire::Icrc crc = wire::icrc_begin({frame, plan.header_bytes}, path.l3_offset, is_v1);
    crc = wire::icrc_update(place_payload(plan, by_reference, crc), {tail, pad});
    wire::store_icrc(tail + pad, wire::icrc_finish(crc));
  }
  TxFrame tx;
  tx.buffer = out.buffer;
  tx.headers_start = static_cast<std::uint16_t>(frame - out.buffer.base);
  tx.headers_bytes = plan.header_bytes;
  tx.length =
      plan.header_bytes + plan.payload_bytes + pad + static_cast<std::uint32_t>(wire::kIcrcBytes);
  const std::span<const std::byte> payload(plan.direct, by_reference ? plan.payload_bytes : 0);
  if (by_reference) {
    tx.references = {&payload, 1};
    tx.trailer_bytes = static_cast<std::uint8_t>(pad + wire::kIcrcBytes);
    tx.token = FrameToken{qp.number.value};
    ++qp.held_frames;
  }
  const bool is_to_group = (frame[0] & std::byte{1}) != std::byte{0};
  if (is_to_group) keep_for_own_group({frame, tx.length});
  sink.transmit(tx);
  counters.add(Counter::port_xmit_packets);
  counters.add(is_to_group ? Counter::multicast_xmit_packets : Counter::unicast_xmit_packets);
  counters.add(Counter::port_xmit_data, tx.length / 4);
  counters.add(Counter::tx_payload_bytes, plan.payload_bytes);
}

void Engine::Impl::keep_for_own_group(std::span<const std::byte> frame) {
  wire::Packet packet;
  if (wire::parse_packet(frame, packet) != DropReason::none) return;
  if (groups.members(packet.path.destination).empty()) return;
  OwnGroupFrame& copy = (*own_group_frames)[own_group_count++];
  std::ranges::copy(frame, copy.bytes.begin());
  copy.length = frame.size();
}

// After the batch, whose moves are done with: these plan moves of their own.
void Engine::Impl::deliver_own_group_frames(Time now) {
  for (std::size_t i = 0; i < own_group_count; ++i) {
    const OwnGroupFrame& frame = (*own_group_frames)[i];
    receive(now, std::span(frame.bytes).first(frame.length));
  }
  if (own_group_count != 0) transport::commit_moves(shard, now);
  own_group_count = 0;
}

void Engine::Impl::commit_outgoing(Time now, FrameSink& sink) {
  if (shard.move_count != 0) {
    shard.memory.move(std::span(shard.moves).first(shard.move_count));
  }
  for (std::size_t i = 0; i < outgoing_count; ++i) {
    const Outgoing& out = outgoing[i];
    if (out.plan.qp == transport::kNoIndex) continue;
    if (out.plan.is_payload_ready || out.plan.direct != nullptr ||
        is_payload_moved(shard, out.plan)) {
      send(out, sink);
      if (!shard.qps[out.plan.qp].is_reliable()) {
        transport::on_request_sent(shard, shard.qps[out.plan.qp], out.plan, now);
      }
      continue;
    }
    transport::Qp& qp = shard.qps[out.plan.qp];
    sink.discard(out.buffer);
    if (out.plan.kind == FramePlan::Kind::kRequest) {
      counters.add(Counter::memory_faults);
      transport::on_request_retracted(shard, qp, out.plan, now);
    } else {
      transport::on_response_retracted(shard, qp, out.plan, now);
    }
    // What the same role planned behind it must not overtake the gap.
    for (std::size_t j = i + 1; j < outgoing_count; ++j) {
      if (outgoing[j].plan.qp != out.plan.qp) continue;
      if (outgoing[j].plan.kind != out.plan.kind && qp.state != transport::QpState::kErr) continue;
      sink.discard(outgoing[j].buffer);
      outgoing[j].plan.qp = transport::kNoIndex;
    }
  }
  shard.move_count = 0;
  outgoing_count = 0;
  deliver_own_group_frames(now);
}

// One QP's turn: until its quantum, the batch, the budget or its work is used up.
PlanOutcome Engine::Impl::plan_turn(Time now, FrameSink& sink, transport::Qp& qp, std::size_t& sent,
                                    std::size_t budget) {
  for (std::size_t quantum = 0; quantum < kQpQuantum && has_work(shard, qp); ++quantum) {
    const bool has_moves = shard.move_count + transport::kMaxMovesPerPacket <= transport::kMaxMoves;
    if (outgoing_count == kTransmitBatch || sent == budget || !has_moves) break;
    const PlanOutcome outcome = plan_one(now, sink, qp);
    if (outcome != PlanOutcome::kPlanned) return outcome;
    ++sent;
  }
  return PlanOutcome::kPlanned;
}

std::size_t Engine::Impl::transmit(Time now, FrameSink& sink, std::size_t budget) {
  std::size_t sent = 0;
  PlanOutcome outcome = PlanOutcome::kPlanned;
  while (sent < budget && outcome != PlanOutcome::kSinkFull && !shard.runnable.is_empty()) {
    const std::size_t before = sent;
    for (std::uint32_t turns = shard.runnable.size(); turns != 0; --turns) {
      if (outgoing_count == kTransmitBatch || sent == budget) break;
      transport::Qp& qp = shard.qps[*shard.runnable.pop()];
      qp.is_scheduled = false;
      outcome = plan_turn(now, sink, qp, sent, budget);
      // A QP that found nothing to plan has changed state or waits for what will schedule it.
      if (outcome != PlanOutcome::kNothing && has_work(shard, qp)) transport::schedule(shard, qp);
      if (outcome == PlanOutcome::kSinkFull) break;
    }
    commit_outgoing(now, sink);
    if (sent == before) break;
  }
  return sent;
}

std::size_t Engine::poll_transmit(Time now, FrameSink& sink, std::size_t budget) {
  const std::size_t sent = impl_->transmit(now, sink, budget);
  transport::forget_work_requests(impl_->shard);
  return sent;
}

bool Engine::has_transmit_work() const { return !impl_->shard.runnable.is_empty(); }

void Engine::on_released(Time, std::span<const FrameToken> tokens) {
  for (const FrameToken token : tokens) {
    transport::Qp* qp = impl_->find_qp(QpNum{static_cast<std::uint32_t>(token.value)});
    ROCEMU_CHECK(qp != nullptr && qp->held_frames != 0);
    --qp->held_frames;
  }
}

}  // namespace rocemu::engine
