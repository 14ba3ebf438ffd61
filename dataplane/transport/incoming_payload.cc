#include "dataplane/transport/incoming_payload.h"

#include "dataplane/memory/moves.h"
#include "dataplane/transport/receive_queue.h"

namespace rocemu::transport {
namespace {

void plan_direct(Shard& shard, std::byte* direct, std::span<const std::byte> payload) {
  shard.moves[shard.move_count++] = {.space = SpaceId{},
                                     .direction = memory::Direction::kToClient,
                                     .status = memory::MoveStatus::kPending,
                                     .length = static_cast<std::uint32_t>(payload.size()),
                                     .client_va = 0,
                                     .direct = direct,
                                     .local = const_cast<std::byte*>(payload.data())};
}

}  // namespace

bool plan_into_receive(Shard& shard, const Qp& qp, const RecvWorkRequest& wr, std::uint64_t offset,
                       std::span<const std::byte> bytes) {
  const SgePlan plan =
      plan_sges(shard, receive_pd(shard, qp), std::span(wr.sges).first(wr.sge_count),
                {offset, static_cast<std::uint32_t>(bytes.size())}, memory::kAccessLocalWrite,
                memory::Direction::kToClient, const_cast<std::byte*>(bytes.data()));
  if (plan.fault != memory::MrFault::kNone) return false;
  if (plan.direct != nullptr) plan_direct(shard, plan.direct, bytes);
  return true;
}

bool open_write(Shard& shard, Qp& qp, const wire::Reth& reth) {
  qp.write_rkey = reth.rkey;
  qp.write_va = reth.va;
  qp.write_length = reth.dma_length;
  qp.incoming_offset = 0;
  if (reth.dma_length == 0) return true;
  return lookup_remote(shard, qp, reth.rkey, reth.va, reth.dma_length, memory::kAccessRemoteWrite)
             .fault == memory::MrFault::kNone;
}

bool plan_into_write(Shard& shard, const Qp& qp, std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const auto length = static_cast<std::uint32_t>(bytes.size());
  const memory::MrView view =
      lookup_remote(shard, qp, qp.write_rkey, qp.write_va + qp.incoming_offset, length,
                    memory::kAccessRemoteWrite);
  if (view.fault != memory::MrFault::kNone) return false;
  memory::split_moves(
      view, memory::Direction::kToClient, const_cast<std::byte*>(bytes.data()), length,
      [&shard](const memory::Move& move) { shard.moves[shard.move_count++] = move; });
  return true;
}

Action& add_request_action(Shard& shard, Qp& qp, const wire::Packet& packet,
                           std::uint32_t first_move) {
  Action& action = shard.actions[shard.action_count++];
  action.kind = Action::Kind::kRequestPlaced;
  action.completes = false;
  action.is_send = packet.info().operation == wire::Operation::kSend;
  action.qp = shard.index_of(qp);
  action.first_move = first_move;
  action.move_count = shard.move_count - first_move;
  action.psn = packet.bth.psn;
  ++qp.uncommitted;
  return action;
}

Completion receive_completion(const Qp& qp, const wire::Packet& packet, std::uint64_t wr_id,
                              std::uint32_t bytes, WcOpcode opcode) {
  Completion completion;
  completion.wr_id = wr_id;
  completion.qp = qp.number;
  completion.opcode = opcode;
  completion.byte_length = bytes;
  completion.is_solicited = packet.bth.solicited;
  if (packet.info().has(wire::kHasImmDt)) {
    completion.immediate_or_rkey = packet.imm.value;
    completion.flags = kWcWithImm;
  } else if (packet.info().has(wire::kHasIeth)) {
    completion.immediate_or_rkey = packet.ieth.rkey;
    completion.flags = kWcWithInv;
  }
  return completion;
}

}  // namespace rocemu::transport
