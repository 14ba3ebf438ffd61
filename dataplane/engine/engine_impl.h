// The engine's insides, shared by the files that implement it: set-up (engine.cc), input
// (dispatch.cc), output (transmit.cc).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "dataplane/engine/engine.h"
#include "dataplane/engine/multicast_groups.h"
#include "dataplane/transport/frame_plan.h"
#include "dataplane/transport/shard.h"
#include "rocemu/base/check.h"

namespace rocemu::engine {

/// QPNs are a slot and a generation: a slot that is used again answers to another number. Slots
/// rest before they are used again.
inline constexpr std::uint32_t kQpIndexBits = 18;
inline constexpr std::uint32_t kQpIndexMask = (1u << kQpIndexBits) - 1;
inline constexpr std::size_t kQuarantinedQps = 1024;
/// Frames planned, moved and committed together.
inline constexpr std::size_t kTransmitBatch = 32;
/// Frames that one QP may send before the next has its turn.
inline constexpr std::size_t kQpQuantum = 16;

/// Longest frame: headers, payload of the largest path MTU, pad, ICRC.
inline constexpr std::size_t kMaxFrameBytes =
    wire::kMaxHeaderBytes + transport::kMaxPathMtu + 3 + wire::kIcrcBytes;

/// A planned frame and the buffer that it is in.
struct Outgoing {
  transport::FramePlan plan;
  TxBuffer buffer;
};

enum class PlanOutcome : std::uint8_t { kPlanned, kNothing, kSinkFull };

struct Engine::Impl {
  Impl(const EngineConfig& engine_config, transport::QueuePort& queues, memory::MemoryPort& memory,
       memory::MrTable& regions, EventSink& events, CounterBlock& counter_block, Prng random);

  /// The live QP of this number, or null.
  transport::Qp* find_qp(QpNum number);
  const transport::Qp* find_qp(QpNum number) const;

  void receive(Time now, std::span<const std::byte> frame);
  bool is_own_gid(const wire::Gid& gid);
  DropReason accept_frame(Time now, std::span<const std::byte> frame, wire::Packet& packet);
  DropReason deliver_to_group(Time now, const wire::Packet& packet);
  DropReason deliver_to(Time now, transport::Qp& qp, const wire::Packet& packet);

  std::size_t transmit(Time now, FrameSink& sink, std::size_t budget);
  PlanOutcome plan_one(Time now, FrameSink& sink, transport::Qp& qp);
  PlanOutcome plan_turn(Time now, FrameSink& sink, transport::Qp& qp, std::size_t& sent,
                        std::size_t budget);
  void commit_outgoing(Time now, FrameSink& sink);
  wire::Icrc place_payload(const transport::FramePlan& plan, bool by_reference, wire::Icrc crc);
  void send(const Outgoing& out, FrameSink& sink);
  void keep_for_own_group(std::span<const std::byte> frame);
  void deliver_own_group_frames(Time now);

  void apply_attributes(transport::Qp& qp, const transport::QpAttr& attr, std::uint32_t mask);
  void enter_state(Time now, transport::Qp& qp, transport::QpState to);

  EngineConfig config;
  CounterBlock& counters;
  transport::Shard shard;
  std::vector<wire::Gid> gids;
  std::size_t last_gid = 0;
  MulticastGroups groups;
  std::deque<std::uint32_t> quarantine;
  bool is_link_up = true;

  std::array<Outgoing, kTransmitBatch> outgoing;
  std::size_t outgoing_count = 0;

  /// Copies of the batch's frames to groups that have members here: no link brings them back.
  struct OwnGroupFrame {
    std::array<std::byte, kMaxFrameBytes> bytes;
    std::size_t length;
  };
  std::unique_ptr<std::array<OwnGroupFrame, kTransmitBatch>> own_group_frames =
      std::make_unique_for_overwrite<std::array<OwnGroupFrame, kTransmitBatch>>();
  std::size_t own_group_count = 0;
};

}  // namespace rocemu::engine
