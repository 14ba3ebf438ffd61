// What the roles of the transport share: the pools, the ports, the plan of the current turn. One
// Shard belongs to one engine and one thread. Requester, completer and responder are free functions
// on it; none of them calls another role's functions to wake it up: they change state and call
// schedule(), and what can be sent is recomputed from the state.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/memory/memory_port.h"
#include "dataplane/memory/mr_table.h"
#include "dataplane/sched/deadline_queue.h"
#include "dataplane/sched/run_queue.h"
#include "dataplane/transport/address_handle.h"
#include "dataplane/transport/events.h"
#include "dataplane/transport/qp.h"
#include "rocemu/abi/counters.h"
#include "rocemu/base/pool.h"
#include "rocemu/base/prng.h"

namespace rocemu::transport {

struct ShardConfig {
  std::uint32_t max_qps = 0;
  std::uint32_t max_cqs = 0;
  std::uint32_t max_srqs = 0;
  std::uint32_t max_taken_receives = 0;
  std::uint32_t max_records = 0;
  std::uint32_t max_resources = 0;
  std::uint32_t max_address_handles = 0;
  std::uint32_t max_unacked_packets = 8192;
  std::uint32_t ack_interval_packets = 32;  ///< An AckReq at least so often within a message.
  bool is_rxe = false;                      ///< Send rxe's departures (departures.md).
};

/// What is to be done once a stretch of the move list has been moved.
struct Action {
  enum class Kind : std::uint8_t {
    kReadPlaced,     ///< Completer: a READ response or atomic result is in the SGEs.
    kRequestPlaced,  ///< Responder: payload of a SEND or WRITE is in place.
  };
  Kind kind = Kind::kRequestPlaced;
  bool completes = false;  ///< The last of its message: a completion is due.
  bool is_send = false;    ///< Payload of a SEND: went into a receive.
  std::uint32_t qp = kNoIndex;
  std::uint32_t record = kNoIndex;
  std::uint32_t first_move = 0;
  std::uint32_t move_count = 0;
  Psn psn;
  std::uint64_t word = 0;  ///< Storage of an atomic's result until it is moved.
  Completion completion;
};

inline constexpr std::size_t kMaxMoves = 1024;
inline constexpr std::size_t kMaxActions = 256;
/// Moves that one packet may need: each SGE in up to three pieces, and the ends of a datagram's
/// network header cut two of them.
inline constexpr std::size_t kMaxMovesPerPacket = (kMaxSge + 2) * 3;

struct Shard {
  Shard(const ShardConfig& shard_config, QueuePort& queue_port, memory::MemoryPort& memory_port,
        memory::MrTable& mr_table, EventSink& event_sink, CounterBlock& counter_block);

  ShardConfig config;
  QueuePort& queues;
  memory::MemoryPort& memory;
  memory::MrTable& regions;
  EventSink& events;
  CounterBlock& counters;

  Pool<Qp> qps;
  Pool<Cq> cqs;
  Pool<Srq> srqs;
  Pool<TakenReceive> taken;
  Pool<SendRecord> records;
  Pool<ResponderResource> resources;
  Pool<AddressHandle> address_handles;
  sched::RunQueue runnable;
  sched::DeadlineQueue deadlines;

  std::array<memory::Move, kMaxMoves> moves;
  std::uint32_t move_count = 0;
  std::array<Action, kMaxActions> actions;
  std::uint32_t action_count = 0;

  /// Private copies of the work requests in use, and whose they are; valid within one call of the
  /// engine.
  SendWorkRequest send_wr;
  std::uint32_t send_wr_qp = kNoIndex;
  std::uint32_t send_wr_index = 0;
  RecvWorkRequest recv_wr;
  std::uint32_t recv_wr_qp = kNoIndex;
  std::uint32_t recv_wr_index = 0;

  std::uint32_t index_of(const Qp& qp) const { return static_cast<std::uint32_t>(&qp - &qps[0]); }
};

/// Puts the QP into the run queue unless it is there.
void schedule(Shard& shard, Qp& qp);

/// Sets or clears one of the QP's timers.
void set_timer(Shard& shard, Qp& qp, TimerKind kind, Time at);
void clear_timer(Qp& qp, TimerKind kind);
inline bool is_timer_set(const Qp& qp, TimerKind kind) {
  return !qp.deadlines[static_cast<std::size_t>(kind)].is_never();
}

/// Moves all planned bytes and runs the actions in order. Called before anything that must see
/// their effect, and at the end of each call of the engine.
void commit_moves(Shard& shard, Time now);
/// Commits when the QP has actions that wait.
void commit_for(Shard& shard, Qp& qp, Time now);
/// Makes room for one packet's moves and one action.
void reserve_packet(Shard& shard, Time now);

/// The QP's send work request at `index`, read and checked, or null when the ring holds nonsense
/// (counted). Cached within a call.
const SendWorkRequest* read_send(Shard& shard, const Qp& qp, std::uint32_t index);
/// The work request of a begun record, or null when the ring says otherwise now (counted).
const SendWorkRequest* read_begun(Shard& shard, const Qp& qp, const SendRecord& record);
/// Forgets the cached copies: rings may have changed.
void forget_work_requests(Shard& shard);

/// Checks an rkey for a request of the QP's peer, and says where the bytes are.
memory::MrView lookup_remote(const Shard& shard, const Qp& qp, std::uint32_t rkey, std::uint64_t va,
                             std::uint64_t length, std::uint32_t access);

/// Plans the moves for bytes [offset, offset + length) of an SGE list. `local` is the frame's side.
/// Returns a fault when a piece fails key, range, right or PD; moves planned so far are then
/// withdrawn. `direct` is set when all bytes are one direct piece and nothing was planned.
struct SgePlan {
  memory::MrFault fault = memory::MrFault::kNone;
  std::byte* direct = nullptr;
};
struct SgeRange {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};
SgePlan plan_sges(Shard& shard, PdId pd, std::span<const Sge> sges, SgeRange range,
                  std::uint32_t access, memory::Direction direction, std::byte* local);

}  // namespace rocemu::transport
