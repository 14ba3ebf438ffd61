// The state of a queue pair, of its begun send work requests and of the requests that its responder
// remembers. Plain data in pools, linked by index; trivially copyable, so that an engine's state is
// an arena of bytes. Hot fields come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dataplane/transport/qp_attr.h"
#include "dataplane/transport/work_request.h"
#include "dataplane/wire/packet.h"
#include "rocemu/base/psn.h"
#include "rocemu/base/time.h"

namespace rocemu::transport {

inline constexpr std::uint32_t kNoIndex = 0xffff'ffff;

/// A send work request that was begun and is not retired. Its SGEs stay in the client's ring and
/// are read again when they are needed; what is here decides, and a ring that says otherwise later
/// is the client's error.
struct SendRecord {
  std::uint64_t wr_id = 0;
  std::uint32_t next = kNoIndex;  ///< The request posted after this one.
  std::uint32_t wqe_index = 0;    ///< Free-running index in the send ring.
  Psn first_psn;
  std::uint32_t psn_count = 1;  ///< Request packets, or response packets of a READ; 0: none sent.
  std::uint32_t length = 0;
  std::uint32_t requested = 0;  ///< READ: response packets asked for so far.
  std::uint32_t received = 0;   ///< READ: response packets placed; else 1 when answered.
  WrOpcode opcode = WrOpcode::kSend;
  WcStatus failure = WcStatus::kSuccess;  ///< Set: fails so as soon as all before it are done.
  bool is_signaled = false;
  bool is_refused = false;  ///< Failed before it took its place among outstanding READs.

  Psn last_psn() const { return first_psn + static_cast<std::int32_t>(psn_count - 1); }
  bool is_read() const { return opcode == WrOpcode::kRdmaRead; }
  bool is_atomic() const {
    return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kAtomicFetchAndAdd;
  }
  bool is_placement() const {
    return opcode == WrOpcode::kFlush || opcode == WrOpcode::kAtomicWrite;
  }
  /// Answered by a response of its own, not by an acknowledgement: counts against max_rd_atomic.
  bool needs_response() const { return is_read() || is_atomic() || is_placement(); }
  /// Done here and then, without a packet: takes no PSN, and ends when all before it have ended.
  bool is_local() const { return opcode == WrOpcode::kLocalInv || opcode == WrOpcode::kBindMw; }
  bool is_answered() const { return received == psn_count; }
};

/// A READ, atomic, FLUSH or ATOMIC WRITE that the responder executed or executes, kept for
/// duplicates (9.7.5.1.5, responder resources).
struct ResponderResource {
  enum class Kind : std::uint8_t {
    kRead,
    kAtomic,
    kPlacement,  ///< FLUSH or ATOMIC WRITE: answered without bytes.
  };
  std::uint32_t next = kNoIndex;  ///< The later request.
  Psn first_psn;
  std::uint32_t psn_count = 1;
  std::uint32_t next_packet =
      0;  ///< The next response packet to send; below end_packet while some are due.
  std::uint32_t end_packet = 0;
  std::uint32_t msn = 0;  ///< Of the response.
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint64_t va = 0;
  std::uint64_t original = 0;  ///< Atomic: what the word held.
  Kind kind = Kind::kRead;
  bool is_replay = false;  ///< Was answered once: the requester that moved on needs it no more.
  bool starts_anew =
      false;  ///< The next response packet opens a response: FIRST or ONLY, not MIDDLE.

  bool is_due() const { return next_packet != end_packet; }
  Psn last_psn() const { return first_psn + static_cast<std::int32_t>(psn_count - 1); }
};

/// A receive work request that a QP took off its shared receive queue: a copy, because the place in
/// the ring is given back at once for the others that share it.
struct TakenReceive {
  std::uint32_t next = kNoIndex;  ///< Taken after this one.
  RecvWorkRequest wr;
};

/// What kind of multi-packet request the responder is in the middle of.
enum class Incoming : std::uint8_t { kNone, kSend, kWrite };

enum class PendingResponse : std::uint8_t { kNone, kAck, kNak };

/// Why the requester waits although it has work.
enum class TimerKind : std::uint8_t {
  kAck,    ///< Exists because responses may be lost: go back when it expires.
  kRnr,    ///< Waits for the time that the peer's RNR NAK asked for.
  kFlush,  ///< Exists because receives posted in the error state ring no doorbell.
  kBegin,  ///< Waits for a send record: the shard's pool was empty.
  kFatal,  ///< Exists because a completion is lost deep inside a turn, and the QP stops after it.
};
inline constexpr std::size_t kTimerKinds = 5;

struct Qp {
  // Requester, hot.
  QpState state = QpState::kReset;
  QpType type = QpType::kRc;
  bool is_scheduled = false;  ///< Stands in the run queue.
  bool signal_all = false;
  std::uint8_t reads_outstanding = 0;
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_retries_left = 0;
  bool is_sq_draining = false;
  bool is_request_turn = false;  ///< Requests and responses take turns.
  bool has_implied_nak = false;  ///< Since the last progress; `implied_psn` is then valid.
  Psn implied_psn;               ///< Of the newest response that showed the loss of another.
  QpNum number;
  std::uint32_t sq_next = 0;       ///< Free-running: the next send work request to begin.
  std::uint32_t sq_retired = 0;    ///< All below may be overwritten by the client.
  std::uint32_t sq_published = 0;  ///< sq_next + what the ring offered when last looked at.
  std::uint32_t record_head = kNoIndex;
  std::uint32_t record_tail = kNoIndex;
  std::uint32_t tx_record = kNoIndex;  ///< Being sent; none: begin the next work request.
  std::uint32_t tx_packet = 0;  ///< Next packet of tx_record; of a READ, the response to ask for.
  Psn next_psn;                 ///< Of the next work request begun.
  Psn unacked_psn;              ///< Oldest not acknowledged.
  Psn sent_psn;                 ///< One past the newest packet ever sent.
  std::uint32_t packets_since_ack_req = 0;
  std::uint32_t path_mtu = 256;

  // Responder, hot.
  Psn expected_psn;
  Psn acked_psn;  ///< Newest request that was executed; what an ACK names.
  std::uint32_t msn = 0;
  Incoming incoming = Incoming::kNone;
  PendingResponse pending_response = PendingResponse::kNone;
  std::uint8_t nak_syndrome = 0;
  bool is_nak_sent = false;        ///< For the current gap; cleared by the expected packet.
  bool owes_sequence_nak = false;  ///< Personality rxe: behind the RNR NAK that waits.
  bool has_refused = false;  ///< In the error state since a request was refused: its NAK is owed.
  Psn nak_psn;
  std::uint32_t rq_next = 0;          ///< Free-running: the receive work request in use or next.
  std::uint32_t rq_retired = 0;       ///< All below are completed; behind rq_next while moves wait.
  std::uint32_t incoming_offset = 0;  ///< Bytes of the current message placed so far.
  std::uint32_t write_rkey = 0;
  std::uint64_t write_va = 0;
  std::uint32_t write_length = 0;
  std::uint32_t resource_head = kNoIndex;
  std::uint32_t resource_tail = kNoIndex;
  std::uint16_t resource_count = 0;
  std::uint16_t due_resources = 0;
  std::uint32_t taken_head = kNoIndex;  ///< With an SRQ: receives taken and not completed.
  std::uint32_t taken_tail = kNoIndex;
  std::uint16_t taken_count = 0;
  bool is_taken_in_use = false;  ///< The newest one's message goes on.
  bool is_communication_established = false;
  bool has_last_wqe_event = false;

  // Shared, hot.
  CqIndex send_cq;
  CqIndex recv_cq;
  SrqIndex srq;
  PdId pd;
  RingRef send_ring;
  RingRef recv_ring;
  QueueLimits limits;
  std::uint32_t uncommitted = 0;  ///< Actions of this QP that wait for the batch of moves.
  std::uint32_t held_frames = 0;  ///< Frames at a sink that reference application memory.
  Time deadlines[kTimerKinds];    ///< Time::never() when not running.
  wire::PathTemplate path;

  // Cold from here on.
  QpAttr attr;
  QpStats stats;
  ContextId context;
  QpCaps caps;
  Duration flush_interval;
  std::uint32_t generation = 0;  ///< Of this slot; part of `number`.

  /// Requests are acknowledged, and sent again until they are.
  bool is_reliable() const { return type == QpType::kRc; }
  /// Each work request names its destination.
  bool is_datagram() const { return type == QpType::kUd || type == QpType::kGsi; }
};

static_assert(std::is_trivially_copyable_v<Qp>);
static_assert(std::is_trivially_copyable_v<SendRecord>);
static_assert(std::is_trivially_copyable_v<ResponderResource>);
static_assert(offsetof(Qp, attr) <= 512, "hot state of a QP: eight cache lines");

/// A completion queue.
struct Cq {
  RingRef ring;
  ArmRef arm;
  ContextId context;
  std::uint32_t producer = 0;
  std::uint32_t announced = 0;  ///< Completions below were there when the last event was raised.
  std::uint32_t users = 0;      ///< QPs that name it, twice when for both directions.
  bool is_armable = false;
  bool has_overflowed = false;
};
static_assert(std::is_trivially_copyable_v<Cq>);

/// A shared receive queue.
struct Srq {
  RingRef ring;
  ContextId context;
  PdId pd;                 ///< Of its receives' memory, whatever the QP's is.
  std::uint32_t next = 0;  ///< Free-running: the receive to take next.
  std::uint32_t max_sge = 0;
  std::uint32_t limit = 0;  ///< Fewer left: one event. 0: not armed.
  std::uint32_t users = 0;  ///< QPs.
  bool has_failed = false;  ///< Its ring held nonsense: nothing is taken any more.
};
static_assert(std::is_trivially_copyable_v<Srq>);
static_assert(std::is_trivially_copyable_v<TakenReceive>);

}  // namespace rocemu::transport
