#include "dataplane/transport/shard.h"

#include <algorithm>

#include "dataplane/memory/moves.h"
#include "dataplane/transport/completer.h"
#include "dataplane/transport/responder.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {

Shard::Shard(const ShardConfig& shard_config, QueuePort& queue_port,
             memory::MemoryPort& memory_port, memory::MrTable& mr_table, EventSink& event_sink,
             CounterBlock& counter_block)
    : config(shard_config),
      queues(queue_port),
      memory(memory_port),
      regions(mr_table),
      events(event_sink),
      counters(counter_block),
      qps(shard_config.max_qps),
      cqs(shard_config.max_cqs),
      srqs(shard_config.max_srqs),
      taken(shard_config.max_taken_receives),
      records(shard_config.max_records),
      resources(shard_config.max_resources),
      address_handles(shard_config.max_address_handles),
      runnable(shard_config.max_qps),
      deadlines(shard_config.max_qps) {}

void schedule(Shard& shard, Qp& qp) {
  if (qp.is_scheduled) return;
  qp.is_scheduled = true;
  shard.runnable.push(shard.index_of(qp));
}

void set_timer(Shard& shard, Qp& qp, TimerKind kind, Time at) {
  qp.deadlines[static_cast<std::size_t>(kind)] = at;
  shard.deadlines.watch(shard.index_of(qp), at);
}

void clear_timer(Qp& qp, TimerKind kind) {
  // The queue's entry stays and finds nothing due when its time comes.
  qp.deadlines[static_cast<std::size_t>(kind)] = Time::never();
}

void commit_moves(Shard& shard, Time now) {
  if (shard.move_count != 0) {
    shard.memory.move(std::span(shard.moves).first(shard.move_count));
  }
  // Actions may complete work and so run code that plans nothing: the lists are empty when they are
  // done.
  const std::uint32_t count = shard.action_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Action& action = shard.actions[i];
    const auto moves = std::span(shard.moves).subspan(action.first_move, action.move_count);
    const bool is_done = std::ranges::all_of(
        moves, [](const memory::Move& m) { return m.status == memory::MoveStatus::kDone; });
    Qp& qp = shard.qps[action.qp];
    ROCEMU_CHECK(qp.uncommitted != 0);
    --qp.uncommitted;
    if (!is_done) shard.counters.add(Counter::memory_faults);
    switch (action.kind) {
      case Action::Kind::kReadPlaced:
        on_read_placed(shard, qp, action, is_done, now);
        break;
      case Action::Kind::kRequestPlaced:
        on_request_placed(shard, qp, action, is_done, now);
        break;
    }
  }
  ROCEMU_CHECK(shard.action_count == count);
  shard.move_count = 0;
  shard.action_count = 0;
}

void commit_for(Shard& shard, Qp& qp, Time now) {
  if (qp.uncommitted != 0) commit_moves(shard, now);
}

void reserve_packet(Shard& shard, Time now) {
  if (shard.move_count + kMaxMovesPerPacket > kMaxMoves || shard.action_count == kMaxActions) {
    commit_moves(shard, now);
  }
}

const SendWorkRequest* read_send(Shard& shard, const Qp& qp, std::uint32_t index) {
  const std::uint32_t qp_index = shard.index_of(qp);
  if (shard.send_wr_qp == qp_index && shard.send_wr_index == index) return &shard.send_wr;
  shard.send_wr_qp = kNoIndex;
  if (shard.queues.read_send(qp.send_ring, index, qp.limits, shard.send_wr) != ReadResult::kOk) {
    shard.counters.add(Counter::client_ring_errors);
    return nullptr;
  }
  shard.send_wr_qp = qp_index;
  shard.send_wr_index = index;
  return &shard.send_wr;
}

const SendWorkRequest* read_begun(Shard& shard, const Qp& qp, const SendRecord& record) {
  const SendWorkRequest* wr = read_send(shard, qp, record.wqe_index);
  if (wr == nullptr) return nullptr;
  if (wr->opcode == record.opcode && wr->length == record.length) return wr;
  shard.counters.add(Counter::client_ring_errors);
  return nullptr;
}

void forget_work_requests(Shard& shard) {
  shard.send_wr_qp = kNoIndex;
  shard.recv_wr_qp = kNoIndex;
}

memory::MrView lookup_remote(const Shard& shard, const Qp& qp, std::uint32_t rkey, std::uint64_t va,
                             std::uint64_t length, std::uint32_t access) {
  return shard.regions.lookup_remote(rkey, {qp.pd, qp.number}, va, length, access);
}

SgePlan plan_sges(Shard& shard, PdId pd, std::span<const Sge> sges, SgeRange range,
                  std::uint32_t access, memory::Direction direction, std::byte* local) {
  const std::uint32_t first_move = shard.move_count;
  std::uint64_t skip = range.offset;
  std::uint32_t left = range.length;
  for (const Sge& sge : sges) {
    if (left == 0) break;
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, sge.length - skip));
    const memory::MrView view = shard.regions.lookup(sge.lkey, pd, sge.va + skip, piece, access);
    if (view.fault != memory::MrFault::kNone) {
      shard.counters.add(Counter::key_violations);
      shard.move_count = first_move;
      return {view.fault, nullptr};
    }
    if (piece == range.length && memory::is_direct(view, piece)) {
      return {memory::MrFault::kNone, memory::direct_at(view)};
    }
    memory::split_moves(view, direction, local, piece, [&shard](const memory::Move& move) {
      ROCEMU_CHECK(shard.move_count < kMaxMoves);
      shard.moves[shard.move_count++] = move;
    });
    local += piece;
    left -= piece;
    skip = 0;
  }
  ROCEMU_CHECK(left == 0);
  return {};
}

}  // namespace rocemu::transport
