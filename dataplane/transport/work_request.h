// Work as the transport sees it: requests decoded out of a client's ring into private copies,
// completions on their way into a CQ, and the QueuePort that does both. Transport never sees a ring
// layout; a ring format is one QueuePort. Everything a QueuePort reads is the client's to change at
// any moment: it copies first, then validates the copy, and masks indices with the daemon's own
// mask.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/memory/mr_table.h"
#include "dataplane/transport/transport_limits.h"
#include "rocemu/base/ids.h"

namespace rocemu::transport {

/// IBV_WR_* values.
enum class WrOpcode : std::uint32_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kAtomicCmpAndSwp = 5,
  kAtomicFetchAndAdd = 6,
  kLocalInv = 7,
  kBindMw = 8,
  kSendWithInv = 9,
  kFlush = 14,
  kAtomicWrite = 15,
};

/// IBV_SEND_* values.
enum SendFlags : std::uint32_t {
  kSendFence = 1 << 0,
  kSendSignaled = 1 << 1,
  kSendSolicited = 1 << 2,
  kSendInline = 1 << 3,
};

struct Sge {
  std::uint64_t va = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

/// What a FLUSH is about; values are those of the wire (wire::Feth), whatever they are.
struct FlushRange {
  std::uint32_t length = 0;
  std::uint8_t type = 0;
  std::uint8_t level = 0;
};

/// A send work request: the ring's WQE, copied and then checked (opcode known, SGE count and inline
/// length within the QP's limits, sum of lengths not above kMaxMessageBytes).
struct SendWorkRequest {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::kSend;
  std::uint32_t flags = 0;      ///< OR of SendFlags.
  std::uint32_t immediate = 0;  ///< Host order of the big-endian value.
  std::uint32_t invalidate_rkey = 0;
  std::uint64_t remote_va = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t remote_qpn = 0;   ///< UD.
  std::uint32_t remote_qkey = 0;  ///< UD.
  std::uint32_t ah_number = 0;    ///< UD: the context's address handle.
  memory::WindowBind bind;        ///< kBindMw.
  FlushRange flush;               ///< kFlush; at remote_va and rkey.
  std::uint32_t length = 0;       ///< Total of the SGEs or of the inline data.
  std::uint32_t sge_count = 0;    ///< 0 with inline data.
  std::array<Sge, kMaxSge> sges;
  std::array<std::byte, kMaxInlineBytes> inline_data;  ///< With kSendInline: `length` bytes.
};

struct RecvWorkRequest {
  std::uint64_t wr_id = 0;    ///< There even when the rest is nonsense.
  bool is_malformed = false;  ///< The ring held nonsense.
  std::uint64_t length = 0;   ///< Total room.
  std::uint32_t sge_count = 0;
  std::array<Sge, kMaxSge> sges;
};

/// IBV_WC_* status values.
enum class WcStatus : std::uint32_t {
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocEecOpErr = 3,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kLocRddViolErr = 14,
  kRemInvRdReqErr = 15,
  kRemAbortErr = 16,
  kInvEecnErr = 17,
  kInvEecStateErr = 18,
  kFatalErr = 19,
  kRespTimeoutErr = 20,
  kGeneralErr = 21,
};

/// IBV_WC_* opcode values.
enum class WcOpcode : std::uint32_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInv = 6,
  kFlush = 8,
  kAtomicWrite = 9,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};

enum WcFlags : std::uint32_t { kWcGrh = 1 << 0, kWcWithImm = 1 << 1, kWcWithInv = 1 << 3 };

/// A work completion before it is laid out in a CQ.
struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  std::uint32_t vendor_error = 0;
  std::uint32_t byte_length = 0;
  std::uint32_t immediate_or_rkey =
      0;  ///< Host order of the immediate, or the invalidated rkey (kWcWithInv).
  QpNum qp = QpNum::none();
  QpNum source_qp{0};
  std::uint32_t flags = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t service_level = 0;
  bool is_solicited = false;  ///< Not in the CQ: decides with the arm word whether an event is due.
};

/// A client's ring: where it is, and the daemon's own copy of its geometry.
struct RingRef {
  RegionId region;
  std::uint64_t offset = 0;       ///< Of the ring's head in the region.
  std::uint32_t log2_stride = 0;  ///< Bytes an element.
  std::uint32_t mask = 0;         ///< Elements - 1; one element always stays empty.
  bool is_present() const { return !region.is_none(); }
};

/// A CQ's arm word (see include/rocemu/abi/doorbell.h).
struct ArmRef {
  RegionId region;
  std::uint64_t offset = 0;
};

enum class ReadResult : std::uint8_t { kOk, kMalformed };

struct QueueLimits {
  std::uint32_t max_sge = 0;  ///< Of send work requests.
  std::uint32_t max_recv_sge = 0;
  std::uint32_t max_inline_bytes = 0;
};

class QueuePort {
 public:
  virtual ~QueuePort() = default;

  /// Work requests published and not below `next` (a free-running index; the ring's is `next &
  /// mask`): 0 ... mask.
  virtual std::uint32_t available(const RingRef& ring, std::uint32_t next) = 0;
  virtual ReadResult read_send(const RingRef& ring, std::uint32_t index, const QueueLimits& limits,
                               SendWorkRequest& out) = 0;
  virtual ReadResult read_recv(const RingRef& ring, std::uint32_t index, const QueueLimits& limits,
                               RecvWorkRequest& out) = 0;
  /// Publishes that all work requests below `index` may be overwritten.
  virtual void retire(const RingRef& ring, std::uint32_t index) = 0;

  /// Room in a CQ for a completion at `producer`.
  virtual bool has_room(const RingRef& cq, std::uint32_t producer) = 0;
  /// True when a completion below `producer` has not been polled yet.
  virtual bool has_unpolled(const RingRef& cq, std::uint32_t producer) = 0;
  /// Writes one completion and publishes `producer + 1`.
  virtual void write_completion(const RingRef& cq, std::uint32_t producer,
                                const Completion& completion) = 0;
  /// Takes the unpolled completions of `qp` out of a CQ that nobody polls meanwhile, and publishes
  /// where the others end; returns that index. `announced` moves with the completions below it.
  virtual std::uint32_t drop_completions(const RingRef& cq, std::uint32_t producer, QpNum qp,
                                         std::uint32_t& announced) = 0;
  /// After write_completion (or a doorbell's check): disarms and returns true when the arm word
  /// matches, with the fence that doorbell.h asks for.
  virtual bool take_arm(const ArmRef& arm, bool is_solicited) = 0;
};

}  // namespace rocemu::transport
