// QP attributes as verbs name them, with addresses already resolved by the control thread: what
// create, modify and query of a QP exchange with the engine. Values of enums and mask bits are
// those of ibv_qp_state, ibv_qp_type and ibv_qp_attr_mask.
#pragma once

#include <cstdint>

#include "dataplane/transport/work_request.h"
#include "dataplane/wire/headers.h"
#include "rocemu/base/ids.h"
#include "rocemu/base/psn.h"

namespace rocemu::transport {

enum class QpType : std::uint8_t { kRc = 2, kUc = 3, kUd = 4, kGsi = 1 };

/// QP states (10.3.1). Each waits for the next modify, except kErr and kSqe, which the engine
/// enters itself.
enum class QpState : std::uint8_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,  ///< Ready to receive: the responder works.
  kRts = 3,  ///< Ready to send: the requester works too.
  kSqd = 4,  ///< Send queue drains, then waits for RTS.
  kSqe = 5,  ///< UC/UD: a send completed in error; receives go on.
  kErr = 6,  ///< All work requests are flushed.
};

enum QpAttrMask : std::uint32_t {
  kQpState = 1 << 0,
  kQpCurState = 1 << 1,
  kQpEnSqdAsyncNotify = 1 << 2,
  kQpAccessFlags = 1 << 3,
  kQpPkeyIndex = 1 << 4,
  kQpPort = 1 << 5,
  kQpQkey = 1 << 6,
  kQpAv = 1 << 7,
  kQpPathMtu = 1 << 8,
  kQpTimeout = 1 << 9,
  kQpRetryCnt = 1 << 10,
  kQpRnrRetry = 1 << 11,
  kQpRqPsn = 1 << 12,
  kQpMaxQpRdAtomic = 1 << 13,
  kQpAltPath = 1 << 14,
  kQpMinRnrTimer = 1 << 15,
  kQpSqPsn = 1 << 16,
  kQpMaxDestRdAtomic = 1 << 17,
  kQpPathMigState = 1 << 18,
  kQpCap = 1 << 19,
  kQpDestQpn = 1 << 20,
  kQpRateLimit = 1 << 25,
};

/// A resolved path. `verbs` is what query_qp gives back and the engine only keeps; `headers` is
/// what goes on the wire.
struct AddressVector {
  struct Verbs {
    wire::Gid dgid{};
    std::uint32_t flow_label = 0;
    std::uint8_t sgid_index = 0;
    std::uint8_t hop_limit = 0;
    std::uint8_t traffic_class = 0;
    std::uint16_t dlid = 0;
    std::uint8_t sl = 0;
    std::uint8_t src_path_bits = 0;
    std::uint8_t static_rate = 0;
    std::uint8_t is_global = 1;
    std::uint8_t port_num = 1;
  } verbs;
  wire::PathHeaders headers;
};

struct QpAttr {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;
  std::uint32_t access = 0;  ///< memory::AccessFlags that remote requests may use.
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint32_t qkey = 0;
  AddressVector av;
  std::uint32_t path_mtu_bytes = 256;
  std::uint8_t timeout = 0;        ///< ACK timeout 4.096 us * 2^t; 0 means none.
  std::uint8_t retry_count = 0;    ///< 3 bits.
  std::uint8_t rnr_retry = 0;      ///< 3 bits; 7 is for ever.
  std::uint8_t min_rnr_timer = 0;  ///< 5 bits, table 45.
  Psn rq_psn;
  Psn sq_psn;
  std::uint8_t max_rd_atomic = 0;       ///< As initiator.
  std::uint8_t max_dest_rd_atomic = 0;  ///< As responder.
  QpNum destination_qp{0};
  bool sqd_async_notify = false;
  bool is_sq_draining = false;      ///< Query only.
  std::uint8_t path_mig_state = 0;  ///< Kept for query.
  std::uint32_t rate_limit_kbps = 0;
};

struct QpCaps {
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t max_inline_bytes = 0;
};

/// What a new QP is made of. Rings are laid out by the control thread before.
struct QpInit {
  QpType type = QpType::kRc;
  ContextId context;
  PdId pd;
  CqIndex send_cq;
  CqIndex recv_cq;
  SrqIndex srq;  ///< none(): an own receive queue.
  RingRef send_ring;
  RingRef recv_ring;  ///< Not present with an SRQ.
  QpCaps caps;
  bool signal_all = false;  ///< sq_sig_all.
};

/// Per-QP counters for `rocemu stat`.
struct QpStats {
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_payload_bytes = 0;
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_payload_bytes = 0;
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t naks_received = 0;
  std::uint64_t naks_sent = 0;
  std::uint64_t timeouts = 0;
};

}  // namespace rocemu::transport
