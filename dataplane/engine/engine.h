// One shard of one emulated NIC, sans-IO: it owns its QPs, CQs and SRQs, and is driven by whoever
// has frames, doorbells and a clock (dataplane/dpdk in real time, dataplane/sim in virtual time).
// Single-threaded: every call comes from the owner's thread. It does no I/O, reads no clock, takes
// no lock, and allocates nothing after construction. Time must not go backwards between calls.
//
// A turn: on_frames / on_doorbells / on_deadline in any order and number, then poll_transmit until
// it returns less than the budget. Completions, events and counters are final when a call returns:
// nothing is acknowledged or completed before its bytes are placed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "dataplane/engine/frame.h"
#include "dataplane/memory/memory_port.h"
#include "dataplane/memory/mr_table.h"
#include "dataplane/transport/events.h"
#include "dataplane/transport/qp_attr.h"
#include "dataplane/transport/work_request.h"
#include "rocemu/abi/counters.h"
#include "rocemu/base/ids.h"
#include "rocemu/base/prng.h"
#include "rocemu/base/result.h"
#include "rocemu/base/time.h"

namespace rocemu::engine {

/// Whose departures from the specification are sent (departures of all are accepted). See
/// dataplane/transport/departures.md.
enum class Personality : std::uint8_t { kIbta, kRxe };

struct EngineLimits {
  std::uint32_t max_qps = 1u << 18;
  std::uint32_t max_cqs = 1u << 17;
  std::uint32_t max_srqs = 1u << 14;
  std::uint32_t max_taken_receives =
      1u << 16;  ///< Taken off SRQs and not completed, all QPs: messages under way.
  std::uint32_t max_gids = 256;
  std::uint32_t max_inflight_requests =
      1u << 16;  ///< Send work requests begun and not retired, all QPs.
  std::uint32_t max_responder_resources = 1u << 16;  ///< Kept READs and atomics, all QPs.
  std::uint32_t max_address_handles = 1u << 15;      ///< At most 2^15.
  std::uint32_t max_unacked_packets = 0;             ///< A QP's window in packets; 0: 8192.
};

struct EngineConfig {
  EngineLimits limits;
  Personality personality = Personality::kIbta;
  std::uint32_t max_mtu_bytes = 4096;  ///< Path MTUs above are refused.
  std::uint32_t first_qpn = 0x11;
  bool always_icrc =
      true;  ///< False: omit and ignore the ICRC when the sink says that it is trusted.
};

using transport::AsyncEvent;
using transport::AsyncEventType;
using transport::EventSink;
using transport::is_srq_event;

struct CqInit {
  ContextId context;
  transport::RingRef ring;
  transport::ArmRef arm;
};

struct AddressHandleInit {
  ContextId context;
  PdId pd;
  wire::PathHeaders headers;
};

struct SrqInit {
  ContextId context;
  PdId pd;
  transport::RingRef ring;
  std::uint32_t max_sge = 0;
};

struct SrqState {
  std::uint32_t limit = 0;  ///< 0: not armed, or the event was raised.
  bool has_failed = false;  ///< kSrqError was raised.
};

struct QpSnapshot {
  QpNum number;
  ContextId context;
  transport::QpType type = transport::QpType::kRc;
  transport::QpAttr attr;
  transport::QpStats stats;
};

struct ObjectCounts {
  std::uint32_t qps = 0;
  std::uint32_t cqs = 0;
  std::uint32_t srqs = 0;
  std::uint32_t inflight_requests = 0;
  std::uint32_t responder_resources = 0;
  std::uint32_t taken_receives = 0;  ///< Off SRQs.
};

class Engine {
 public:
  /// All references must outlive the engine. Throws std::bad_alloc.
  Engine(const EngineConfig& config, transport::QueuePort& queues, memory::MemoryPort& memory,
         memory::MrTable& regions, EventSink& events, CounterBlock& counters, Prng prng);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The five verbs of the data plane.
  /// A received burst, in order; RoCE frames only (wire::classify_frame). Bad ones are dropped and
  /// counted.
  void on_frames(Time now, std::span<RxFrame> frames);
  /// Applications published work requests on the send queues of these QPs. Unknown numbers are
  /// ignored.
  void on_doorbells(Time now, std::span<const QpNum> qps);
  /// A CQ was armed: fires at once when it holds unpolled completions.
  void on_cq_armed(Time now, CqIndex cq);
  /// Runs due timers. Safe early or twice.
  void on_deadline(Time now);
  std::optional<Time> next_deadline() const;
  /// Emits up to `budget` frames that are due; returns how many. Less than `budget`: nothing more
  /// is due now, or the sink is full (then has_transmit_work() stays true).
  std::size_t poll_transmit(Time now, FrameSink& sink, std::size_t budget);
  bool has_transmit_work() const;
  /// Frames that referenced application memory have left.
  void on_released(Time now, std::span<const FrameToken> tokens);

  // Set-up, called by control through the owner's thread. Errors carry the kernel's errno.

  /// Addresses that received packets may name as destination. At most max_gids.
  Result<void> set_gids(std::span<const wire::Gid> gids);
  void set_link_up(Time now, bool is_up);

  Result<CqIndex> create_cq(const CqInit& init);
  Result<void> resize_cq(CqIndex cq, const transport::RingRef& ring, std::uint32_t producer);
  /// Removes the completions of a QP in RESET, which nobody polls meanwhile, from its CQs. EINVAL.
  Result<void> drop_completions(QpNum qp);
  Result<void> destroy_cq(CqIndex cq);  ///< EBUSY while QPs use it.

  /// The number by which work requests of UD QPs of that context and PD name the handle. ENOMEM.
  Result<std::uint32_t> create_address_handle(const AddressHandleInit& init);
  Result<void> destroy_address_handle(std::uint32_t number);

  /// Datagrams to the group are delivered to the UD QP too. ENOMEM at the limits.
  Result<void> attach_multicast(QpNum qp, const wire::Gid& group);
  Result<void> detach_multicast(QpNum qp, const wire::Gid& group);  ///< EINVAL: not attached.

  Result<SrqIndex> create_srq(const SrqInit& init);
  /// Receives in the new ring stand from index 0 on.
  Result<void> resize_srq(SrqIndex srq, const transport::RingRef& ring);
  /// Arms the limit event, 0 disarms. With fewer receives posted than `limit` it is due at once.
  Result<void> set_srq_limit(SrqIndex srq, std::uint32_t limit);
  Result<SrqState> query_srq(SrqIndex srq) const;
  Result<void> destroy_srq(SrqIndex srq);  ///< EBUSY while QPs use it.

  Result<QpNum> create_qp(const transport::QpInit& init);
  /// Checks state table and attribute mask, applies, and acts (flush on ERR and RESET, drain on
  /// SQD). EINVAL otherwise.
  Result<void> modify_qp(Time now, QpNum qp, const transport::QpAttr& attr, std::uint32_t mask);
  Result<transport::QpAttr> query_qp(QpNum qp) const;
  /// Returns when nothing of the QP remains; no completion is written for it after. EAGAIN while a
  /// sink holds frames that reference its memory: they must be released first.
  Result<void> destroy_qp(Time now, QpNum qp);
  std::optional<QpSnapshot> snapshot(QpNum qp) const;
  /// Live QPs in a stable order, starting with index `from`: fills `out`, returns how many (for
  /// `rocemu stat`).
  std::size_t list_qps(std::uint32_t from, std::span<QpSnapshot> out) const;

  ObjectCounts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rocemu::engine
