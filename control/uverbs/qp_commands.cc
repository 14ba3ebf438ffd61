// Queue pairs: create, query, modify with address resolution, destroy.
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <algorithm>

#include "control/uverbs/call.h"
#include "control/uverbs/rings.h"
#include "dataplane/transport/transport_limits.h"
#include "rocemu/abi/rxe_ring.h"

namespace rocemu::control::uverbs {
namespace {

// The flexible arrays at the end have a size of their own in C++: the ends are told by the field
// before.
static_assert(offsetof(rxe_dma_info, reserved) + 4 == rxe::kDmaData);
static_assert(rxe::kSendDma + rxe::kDmaData == rxe::kSendWqeBytes);
static_assert(rxe::kRecvDma + rxe::kDmaData == rxe::kRecvWqeBytes);
static_assert(offsetof(rxe_send_wqe, wr.opcode) == rxe::kSendOpcode);
static_assert(offsetof(rxe_send_wqe, wr.send_flags) == rxe::kSendFlags);
static_assert(offsetof(rxe_send_wqe, wr.ex) == rxe::kSendEx);
static_assert(offsetof(rxe_send_wqe, wr.wr.rdma.remote_addr) == rxe::kSendRemoteAddr);
static_assert(offsetof(rxe_send_wqe, wr.wr.rdma.rkey) == rxe::kSendRdmaRkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.atomic.compare_add) == rxe::kSendAtomicCompareAdd);
static_assert(offsetof(rxe_send_wqe, wr.wr.atomic.swap) == rxe::kSendAtomicSwap);
static_assert(offsetof(rxe_send_wqe, wr.wr.atomic.rkey) == rxe::kSendAtomicRkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.ud.remote_qpn) == rxe::kSendUdRemoteQpn);
static_assert(offsetof(rxe_send_wqe, wr.wr.ud.remote_qkey) == rxe::kSendUdRemoteQkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.ud.pkey_index) == rxe::kSendUdPkeyIndex);
static_assert(offsetof(rxe_send_wqe, wr.wr.ud.ah_num) == rxe::kSendUdAhNum);
static_assert(offsetof(rxe_send_wqe, wr.wr.ud.av) == rxe::kSendUdAv);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.addr) == rxe::kSendMwAddr);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.length) == rxe::kSendMwLength);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.mr_lkey) == rxe::kSendMwMrLkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.mw_rkey) == rxe::kSendMwMwRkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.rkey) == rxe::kSendMwRkey);
static_assert(offsetof(rxe_send_wqe, wr.wr.mw.access) == rxe::kSendMwAccess);
static_assert(offsetof(rxe_send_wqe, status) == rxe::kSendStatus);
static_assert(offsetof(rxe_send_wqe, state) == rxe::kSendState);
static_assert(offsetof(rxe_send_wqe, iova) == rxe::kSendIova);
static_assert(offsetof(rxe_send_wqe, dma) == rxe::kSendDma);
static_assert(offsetof(rxe_dma_info, length) == rxe::kDmaLength);
static_assert(offsetof(rxe_dma_info, num_sge) == rxe::kDmaNumSge);
static_assert(sizeof(rxe_sge) == rxe::kSgeBytes);
static_assert(offsetof(rxe_sge, addr) == rxe::kSgeAddr);
static_assert(offsetof(rxe_sge, length) == rxe::kSgeLength);
static_assert(offsetof(rxe_sge, lkey) == rxe::kSgeLkey);
static_assert(offsetof(rxe_recv_wqe, wr_id) == rxe::kRecvWrId);
static_assert(offsetof(rxe_recv_wqe, dma) == rxe::kRecvDma);

constexpr std::uint32_t kMinInline = 64;  // programs post inline without asking

struct QpRequest {
  std::uint64_t user_handle = 0;
  std::uint32_t pd = 0;
  std::uint32_t send_cq = 0;
  std::uint32_t recv_cq = 0;
  transport::QpCaps caps;
  std::uint8_t type = 0;
  bool signal_all = false;
  std::optional<std::uint32_t> srq;
};

struct QpMade {
  std::uint32_t handle = 0;
  QpNum number;
  transport::QpCaps caps;
  mminfo send_ring{};
  mminfo recv_ring{};
};

// What concerns the receive queue is of no meaning with an SRQ, and not looked at.
bool are_caps_legal(const transport::QpCaps& caps, bool has_srq) {
  return caps.max_send_wr < transport::kMaxQpWr && caps.max_send_sge <= transport::kMaxSge &&
         caps.max_inline_bytes <= transport::kMaxInlineBytes &&
         (has_srq ||
          (caps.max_recv_wr < transport::kMaxQpWr && caps.max_recv_sge <= transport::kMaxSge));
}

// An element holds the SGEs or the inline data, whichever is longer, and both get what the other
// made room for.
void round_up_send_caps(transport::QpCaps& caps) {
  const std::uint32_t room =
      std::max({caps.max_send_sge * static_cast<std::uint32_t>(rxe::kSgeBytes),
                caps.max_inline_bytes, kMinInline});
  caps.max_send_sge =
      std::min(room / static_cast<std::uint32_t>(rxe::kSgeBytes), transport::kMaxSge);
  caps.max_inline_bytes = room;
}

// The rings of `qp`, its capacities brought to what they hold. With an SRQ there is no receive
// ring.
int make_rings(VerbsContext& context, QueuePair& qp) {
  transport::QpCaps& caps = qp.caps;
  round_up_send_caps(caps);
  // Offsets descend, and the provider maps the receive ring first, the send ring below it: made in
  // that order, the mappings of all rings continue each other.
  if (qp.srq) {
    caps.max_recv_wr = caps.max_recv_sge = 0;
  } else {
    caps.max_recv_sge = std::max(1u, caps.max_recv_sge);
    auto rq = context.make_ring(
        std::max(1u, caps.max_recv_wr),
        static_cast<std::uint32_t>(rxe::kRecvWqeBytes + caps.max_recv_sge * rxe::kSgeBytes));
    if (!rq) return rq.error().code;
    qp.recv_ring = *rq;
    caps.max_recv_wr = VerbsContext::usable_entries(qp.recv_ring);
  }
  auto sq =
      context.make_ring(std::max(1u, caps.max_send_wr),
                        static_cast<std::uint32_t>(rxe::kSendWqeBytes) + caps.max_inline_bytes);
  if (!sq) {
    context.free_ring(qp.recv_ring);
    return sq.error().code;
  }
  qp.send_ring = *sq;
  caps.max_send_wr = VerbsContext::usable_entries(qp.send_ring);
  return 0;
}

// SMI and GSI are the kernel's (EINVAL, as ib_uverbs says); others the device does not have.
Result<transport::QpType> qp_type_of(std::uint8_t type) {
  constexpr std::uint8_t kSmi = 0;
  switch (static_cast<transport::QpType>(type)) {
    case transport::QpType::kRc:
    case transport::QpType::kUc:
    case transport::QpType::kUd:
      return static_cast<transport::QpType>(type);
    case transport::QpType::kGsi:
      return Error{EINVAL, "QP1 is reserved"};
  }
  if (type == kSmi) return Error{EINVAL, "QP0 is reserved"};
  return Error{EOPNOTSUPP, "no such transport service"};
}

int make_qp(VerbsContext& context, const QpRequest& in, QpMade& out) {
  ProtectionDomain* pd = context.pds.find(in.pd);
  CompletionQueue* send_cq = context.cqs.find(in.send_cq);
  CompletionQueue* recv_cq = context.cqs.find(in.recv_cq);
  if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr) return EINVAL;
  const auto type = qp_type_of(in.type);
  if (!type) return type.error().code;
  SharedReceiveQueue* srq = in.srq ? context.srqs.find(*in.srq) : nullptr;
  if (in.srq && srq == nullptr) return EINVAL;
  if (!are_caps_legal(in.caps, srq != nullptr)) return EINVAL;
  const auto handle = context.qps.next_handle();
  if (!handle) return ENOMEM;
  QueuePair qp;
  qp.caps = in.caps;
  qp.srq = in.srq;
  if (const int error = make_rings(context, qp); error != 0) return error;
  transport::QpInit init;
  init.type = *type;
  init.context = context.identity.id;
  init.pd = pd->id;
  init.send_cq = send_cq->index;
  init.recv_cq = recv_cq->index;
  if (srq != nullptr) init.srq = srq->index;
  init.send_ring = qp.send_ring.ref;
  init.recv_ring = qp.recv_ring.ref;
  init.caps = qp.caps;
  init.signal_all = in.signal_all;
  Device& device = context.device;
  const auto made = device.worker.run([&] {
    auto number = device.worker.engine(device.index).create_qp(init);
    if (number) device.worker.bind_qp(context.identity.id, handle_slot(*handle), *number);
    return number;
  });
  if (!made) {
    context.free_ring(qp.send_ring);
    context.free_ring(qp.recv_ring);
    return made.error().code;
  }
  qp.number = out.number = made.value();
  qp.pd = in.pd;
  qp.send_cq = in.send_cq;
  qp.recv_cq = in.recv_cq;
  qp.user_handle = in.user_handle;
  qp.signal_all = in.signal_all;
  out.handle = *handle;
  out.caps = qp.caps;
  out.send_ring = info_of(qp.send_ring);
  out.recv_ring = info_of(qp.recv_ring);
  ++pd->users;
  ++send_cq->users;
  ++recv_cq->users;
  if (srq != nullptr) ++srq->users;
  device.qp_owners[qp.number.value] = {&context, *handle};
  context.qps.add(std::move(qp));
  return 0;
}

ib_uverbs_create_qp_resp describe(const QpMade& made) {
  ib_uverbs_create_qp_resp r{};
  r.qp_handle = made.handle;
  r.qpn = made.number.value;
  r.max_send_wr = made.caps.max_send_wr;
  r.max_recv_wr = made.caps.max_recv_wr;
  r.max_send_sge = made.caps.max_send_sge;
  r.max_recv_sge = made.caps.max_recv_sge;
  r.max_inline_data = made.caps.max_inline_bytes;
  return r;
}

}  // namespace

int find_path(Call& call, const ib_uverbs_qp_dest& dest, const PathEnds& ends,
              transport::AddressVector& out) {
  auto& v = out.verbs;
  std::copy(std::begin(dest.dgid), std::end(dest.dgid), v.dgid.begin());
  v.flow_label = dest.flow_label & 0xf'ffff;
  v.sgid_index = dest.sgid_index;
  v.hop_limit = dest.hop_limit;
  v.traffic_class = dest.traffic_class;
  v.dlid = dest.dlid;
  v.sl = dest.sl;
  v.src_path_bits = dest.src_path_bits;
  v.static_rate = dest.static_rate;
  v.is_global = dest.is_global;
  v.port_num = dest.port_num;
  switch (resolve_path(call.context.device, ends, out, call.awaited)) {
    case PathOutcome::kFound:
      return 0;
    case PathOutcome::kNeighbourAsked:
      return call.is_last_try ? ETIMEDOUT : kSuspended;
    case PathOutcome::kInvalid:
      break;
  }
  return EINVAL;
}

namespace {

int modify(Call& call, const ib_uverbs_modify_qp& in, std::uint32_t rate_limit) {
  using namespace transport;
  QueuePair* qp = call.context.qps.find(in.qp_handle);
  if (qp == nullptr) return EINVAL;
  Device& device = call.context.device;
  const std::uint32_t mask = in.attr_mask;
  if ((mask & kQpState) != 0 && in.qp_state > static_cast<std::uint8_t>(QpState::kErr)) {
    return EINVAL;
  }
  if ((mask & kQpPathMtu) != 0 && (in.path_mtu < 1 || in.path_mtu > 5)) return EINVAL;
  QpAttr attr;
  attr.state = static_cast<QpState>(in.qp_state);
  attr.current_state = static_cast<QpState>(in.cur_qp_state);
  attr.access = in.qp_access_flags;
  attr.pkey_index = in.pkey_index;
  attr.port = in.port_num;
  attr.qkey = in.qkey;
  attr.path_mtu_bytes = 128u << in.path_mtu;
  attr.timeout = in.timeout;
  attr.retry_count = in.retry_cnt;
  attr.rnr_retry = in.rnr_retry;
  attr.min_rnr_timer = in.min_rnr_timer;
  attr.rq_psn = Psn(in.rq_psn);
  attr.sq_psn = Psn(in.sq_psn);
  attr.max_rd_atomic = in.max_rd_atomic;
  attr.max_dest_rd_atomic = in.max_dest_rd_atomic;
  attr.destination_qp = QpNum{in.dest_qp_num & 0xff'ffff};
  attr.sqd_async_notify = in.en_sqd_async_notify != 0;
  attr.path_mig_state = in.path_mig_state;
  attr.rate_limit_kbps = rate_limit;
  if ((mask & kQpAv) != 0) {
    const int error = find_path(call, in.dest, {qp->number, attr.destination_qp}, attr.av);
    if (error != 0) return error;
  }
  const auto done = device.worker.run([&] {
    return device.worker.engine(device.index)
        .modify_qp(device.worker.now(), qp->number, attr, mask);
  });
  if (!done) return done.error().code;
  if ((mask & kQpState) != 0) {
    call.context.set_takes_sends(in.qp_handle, *qp, attr.state >= QpState::kRts);
  }
  return 0;
}

ib_uverbs_qp_dest describe(const transport::AddressVector::Verbs& v) {
  ib_uverbs_qp_dest d{};
  std::copy(v.dgid.begin(), v.dgid.end(), std::begin(d.dgid));
  d.flow_label = v.flow_label;
  d.dlid = v.dlid;
  d.sgid_index = v.sgid_index;
  d.hop_limit = v.hop_limit;
  d.traffic_class = v.traffic_class;
  d.sl = v.sl;
  d.src_path_bits = v.src_path_bits;
  d.static_rate = v.static_rate;
  d.is_global = v.is_global;
  d.port_num = v.port_num;
  return d;
}

std::uint8_t mtu_code(std::uint32_t bytes) {
  std::uint8_t code = 1;
  while (128u << code < bytes) ++code;
  return code;
}

}  // namespace

int create_qp(Call& call) {
  const auto in = call.take<ib_uverbs_create_qp>();
  QpMade made;
  const int error = make_qp(
      call.context,
      {in.user_handle,
       in.pd_handle,
       in.send_cq_handle,
       in.recv_cq_handle,
       {in.max_send_wr, in.max_recv_wr, in.max_send_sge, in.max_recv_sge, in.max_inline_data},
       in.qp_type,
       in.sq_sig_all != 0,
       in.is_srq != 0 ? std::optional(in.srq_handle) : std::nullopt},
      made);
  if (error != 0) return error;
  call.put(describe(made));
  call.put_driver(rxe_create_qp_resp{made.recv_ring, made.send_ring}, false);
  return 0;
}

int create_qp_ex(Call& call) {
  const auto in = call.take<ib_uverbs_ex_create_qp>();
  if (in.comp_mask != 0 || in.create_flags != 0) return EOPNOTSUPP;
  QpMade made;
  const int error = make_qp(
      call.context,
      {in.user_handle,
       in.pd_handle,
       in.send_cq_handle,
       in.recv_cq_handle,
       {in.max_send_wr, in.max_recv_wr, in.max_send_sge, in.max_recv_sge, in.max_inline_data},
       in.qp_type,
       in.sq_sig_all != 0,
       in.is_srq != 0 ? std::optional(in.srq_handle) : std::nullopt},
      made);
  if (error != 0) return error;
  ib_uverbs_ex_create_qp_resp r{};
  r.base = describe(made);
  r.response_length = static_cast<std::uint32_t>(std::min(sizeof r, call.core_room));
  call.put(r);
  call.put_driver(rxe_create_qp_resp{made.recv_ring, made.send_ring}, true);
  return 0;
}

int query_qp(Call& call) {
  const auto in = call.take<ib_uverbs_query_qp>();
  QueuePair* qp = call.context.qps.find(in.qp_handle);
  if (qp == nullptr) return EINVAL;
  Device& device = call.context.device;
  const auto found =
      device.worker.run([&] { return device.worker.engine(device.index).query_qp(qp->number); });
  if (!found) return found.error().code;
  const transport::QpAttr& a = found.value();
  ib_uverbs_query_qp_resp r{};
  r.dest = describe(a.av.verbs);
  r.max_send_wr = qp->caps.max_send_wr;
  r.max_recv_wr = qp->caps.max_recv_wr;
  r.max_send_sge = qp->caps.max_send_sge;
  r.max_recv_sge = qp->caps.max_recv_sge;
  r.max_inline_data = qp->caps.max_inline_bytes;
  r.qkey = a.qkey;
  r.rq_psn = a.rq_psn.value();
  r.sq_psn = a.sq_psn.value();
  r.dest_qp_num = a.destination_qp.value;
  r.qp_access_flags = a.access;
  r.pkey_index = a.pkey_index;
  r.qp_state = static_cast<std::uint8_t>(a.state);
  r.cur_qp_state = r.qp_state;
  r.path_mtu = mtu_code(a.path_mtu_bytes);
  r.path_mig_state = a.path_mig_state;
  r.sq_draining = a.is_sq_draining ? 1 : 0;
  r.max_rd_atomic = a.max_rd_atomic;
  r.max_dest_rd_atomic = a.max_dest_rd_atomic;
  r.min_rnr_timer = a.min_rnr_timer;
  r.port_num = a.port;
  r.timeout = a.timeout;
  r.retry_cnt = a.retry_count;
  r.rnr_retry = a.rnr_retry;
  r.sq_sig_all = qp->signal_all ? 1 : 0;
  call.put(r);
  return 0;
}

int modify_qp(Call& call) { return modify(call, call.take<ib_uverbs_modify_qp>(), 0); }

int modify_qp_ex(Call& call) {
  const auto in = call.take<ib_uverbs_ex_modify_qp>();
  const int error = modify(call, in.base, in.rate_limit);
  if (error != 0) return error;
  ib_uverbs_ex_modify_qp_resp r{};
  r.response_length = static_cast<std::uint32_t>(std::min(sizeof r, call.core_room));
  call.put(r);
  return 0;
}

int destroy_qp(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_destroy_qp>().qp_handle;
  QueuePair* qp = call.context.qps.find(handle);
  if (qp == nullptr) return EINVAL;
  if (!qp->groups.empty()) return EBUSY;
  ib_uverbs_destroy_qp_resp r{};
  r.events_reported = qp->async_events;
  if (qp->async_events != 0) r.events_reported -= call.context.withdraw_async(qp->user_handle);
  call.context.set_takes_sends(handle, *qp, false);
  call.context.destroy_qp(handle, *qp);
  call.put(r);
  return 0;
}

int post_send(Call& call) {
  // Work requests are in the ring; this is the doorbell of a client without the shim's page.
  const auto in = call.take<ib_uverbs_post_send>();
  QueuePair* qp = call.context.qps.find(in.qp_handle);
  if (qp == nullptr || !qp->takes_sends) return EINVAL;
  Device& device = call.context.device;
  device.worker.run([&] {
    device.worker.engine(device.index).on_doorbells(device.worker.now(), {&qp->number, 1});
  });
  return 0;
}

}  // namespace rocemu::control::uverbs
