// Set-up: objects come and go, attributes change. Runs on the owner's thread between turns, and may
// allocate where it says so.
#include "dataplane/engine/engine.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "dataplane/engine/engine_impl.h"
#include "dataplane/transport/completion.h"
#include "dataplane/transport/receive_queue.h"
#include "dataplane/transport/recovery.h"
#include "dataplane/transport/requester.h"
#include "dataplane/transport/state_table.h"

namespace rocemu::engine {
namespace {

using transport::Qp;
using transport::QpAttr;
using transport::QpState;

transport::ShardConfig shard_config(const EngineConfig& config) {
  return {
      .max_qps = std::min(config.limits.max_qps, kQpIndexMask + 1),
      .max_cqs = config.limits.max_cqs,
      .max_srqs = config.limits.max_srqs,
      .max_taken_receives = config.limits.max_taken_receives,
      .max_records = config.limits.max_inflight_requests,
      .max_resources = config.limits.max_responder_resources,
      .max_address_handles =
          std::min(config.limits.max_address_handles, transport::kAhIndexMask + 1),
      .max_unacked_packets =
          config.limits.max_unacked_packets != 0 ? config.limits.max_unacked_packets : 8192,
      // rxe asks at every 66th packet of a message (departures.md).
      .ack_interval_packets = config.personality == Personality::kRxe ? 66u : 32u,
      .is_rxe = config.personality == Personality::kRxe,
  };
}

Error no_such_srq() { return {EINVAL, "no such shared receive queue"}; }
Error no_such_qp() { return {EINVAL, "no such queue pair"}; }

// Values that a transition may set, checked before any is applied.
std::optional<Error> check_values(const QpAttr& attr, std::uint32_t mask,
                                  const EngineConfig& config) {
  if ((mask & transport::kQpPathMtu) != 0 &&
      (!std::has_single_bit(attr.path_mtu_bytes) || attr.path_mtu_bytes < transport::kMinPathMtu ||
       attr.path_mtu_bytes > config.max_mtu_bytes)) {
    return Error{EINVAL, "the path MTU is above what the port carries"};
  }
  if ((mask & transport::kQpMaxQpRdAtomic) != 0 && attr.max_rd_atomic > transport::kMaxRdAtomic) {
    return Error{EINVAL, "max_rd_atomic is above the device's limit"};
  }
  if ((mask & transport::kQpMaxDestRdAtomic) != 0 &&
      attr.max_dest_rd_atomic > transport::kMaxRdAtomic) {
    return Error{EINVAL, "max_dest_rd_atomic is above the device's limit"};
  }
  if ((mask & transport::kQpTimeout) != 0 && attr.timeout > 31) {
    return Error{EINVAL, "the ACK timeout has five bits"};
  }
  if ((mask & transport::kQpRetryCnt) != 0 && attr.retry_count > 7) {
    return Error{EINVAL, "retry_cnt has three bits"};
  }
  if ((mask & transport::kQpRnrRetry) != 0 && attr.rnr_retry > 7) {
    return Error{EINVAL, "rnr_retry has three bits"};
  }
  if ((mask & transport::kQpMinRnrTimer) != 0 && attr.min_rnr_timer > 31) {
    return Error{EINVAL, "min_rnr_timer has five bits"};
  }
  if ((mask & transport::kQpPort) != 0 && attr.port != 1) {
    return Error{EINVAL, "the device has port 1 only"};
  }
  if ((mask & transport::kQpPkeyIndex) != 0 && attr.pkey_index != 0) {
    return Error{EINVAL, "the P_Key table has one entry"};
  }
  return std::nullopt;
}

QpSnapshot snapshot_of(const Qp& qp) { return {qp.number, qp.context, qp.type, qp.attr, qp.stats}; }

}  // namespace

Engine::Impl::Impl(const EngineConfig& engine_config, transport::QueuePort& queues,
                   memory::MemoryPort& memory, memory::MrTable& regions, EventSink& events,
                   CounterBlock& counter_block, Prng)
    : config(engine_config),
      counters(counter_block),
      shard(shard_config(engine_config), queues, memory, regions, events, counter_block) {
  gids.reserve(config.limits.max_gids);
}

Qp* Engine::Impl::find_qp(QpNum number) {
  const std::uint32_t index = number.value & kQpIndexMask;
  if (index >= shard.qps.capacity() || !shard.qps.is_live(index)) return nullptr;
  Qp& qp = shard.qps[index];
  return qp.number == number ? &qp : nullptr;
}

const Qp* Engine::Impl::find_qp(QpNum number) const {
  return const_cast<Impl*>(this)->find_qp(number);
}

Engine::Engine(const EngineConfig& config, transport::QueuePort& queues, memory::MemoryPort& memory,
               memory::MrTable& regions, EventSink& events, CounterBlock& counters, Prng prng)
    : impl_(std::make_unique<Impl>(config, queues, memory, regions, events, counters, prng)) {
  // The low slots are the numbers of QP0, QP1 and other well-known ones.
  for (std::uint32_t i = 0; i < config.first_qpn; ++i) ROCEMU_CHECK(impl_->shard.qps.acquire());
}

Engine::~Engine() = default;

Result<void> Engine::set_gids(std::span<const wire::Gid> gids) {
  if (gids.size() > impl_->config.limits.max_gids) return Error{ENOSPC, "too many GIDs"};
  impl_->gids.assign(gids.begin(), gids.end());
  return {};
}

void Engine::set_link_up(Time, bool is_up) {
  if (impl_->is_link_up && !is_up) impl_->counters.add(Counter::link_downed);
  impl_->is_link_up = is_up;
}

Result<CqIndex> Engine::create_cq(const CqInit& init) {
  const auto index = impl_->shard.cqs.acquire();
  if (!index) return Error{ENOMEM, "the device has no completion queue left"};
  transport::Cq cq;
  cq.ring = init.ring;
  cq.arm = init.arm;
  cq.context = init.context;
  cq.is_armable = !init.arm.region.is_none();
  impl_->shard.cqs[*index] = cq;
  return CqIndex{*index};
}

Result<void> Engine::resize_cq(CqIndex cq, const transport::RingRef& ring, std::uint32_t producer) {
  if (!impl_->shard.cqs.is_live(cq.value)) return Error{EINVAL, "no such completion queue"};
  transport::Cq& resized = impl_->shard.cqs[cq.value];
  // The same completions stay announced: indices begin anew.
  const std::uint32_t unannounced = std::min(resized.producer - resized.announced, producer);
  resized.ring = ring;
  resized.producer = producer;
  resized.announced = producer - unannounced;
  return {};
}

Result<void> Engine::drop_completions(QpNum number) {
  const Qp* qp = impl_->find_qp(number);
  if (qp == nullptr || qp->state != QpState::kReset) {
    return Error{EINVAL, "no such queue pair in RESET"};
  }
  const auto drop = [&](CqIndex index) {
    transport::Cq& cq = impl_->shard.cqs[index.value];
    cq.producer = impl_->shard.queues.drop_completions(cq.ring, cq.producer, number, cq.announced);
  };
  drop(qp->send_cq);
  if (!(qp->recv_cq == qp->send_cq)) drop(qp->recv_cq);
  return {};
}

Result<void> Engine::destroy_cq(CqIndex cq) {
  if (!impl_->shard.cqs.is_live(cq.value)) return Error{EINVAL, "no such completion queue"};
  if (impl_->shard.cqs[cq.value].users != 0) return Error{EBUSY, "queue pairs use the CQ"};
  impl_->shard.cqs.release(cq.value);
  return {};
}

Result<std::uint32_t> Engine::create_address_handle(const AddressHandleInit& init) {
  transport::Shard& shard = impl_->shard;
  const auto index = shard.address_handles.acquire();
  if (!index) return Error{ENOMEM, "the device has no address handle left"};
  transport::AddressHandle& ah = shard.address_handles[*index];
  // The slot remembers its last number; a generation is never 0.
  std::uint32_t generation = (ah.number >> transport::kAhIndexBits) + 1;
  if (generation > (~0u >> transport::kAhIndexBits)) generation = 1;
  ah.number = generation << transport::kAhIndexBits | *index;
  ah.context = init.context;
  ah.pd = init.pd;
  ah.path = wire::make_path_template(init.headers);
  return ah.number;
}

Result<void> Engine::destroy_address_handle(std::uint32_t number) {
  transport::Shard& shard = impl_->shard;
  const std::uint32_t index = number & transport::kAhIndexMask;
  if (!shard.address_handles.is_live(index) || shard.address_handles[index].number != number) {
    return Error{EINVAL, "no such address handle"};
  }
  shard.address_handles.release(index);
  return {};
}

Result<void> Engine::attach_multicast(QpNum number, const wire::Gid& group) {
  const Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return no_such_qp();
  if (!qp->is_datagram() || !wire::is_multicast(group)) {
    return Error{EINVAL, "UD queue pairs attach to multicast groups"};
  }
  return impl_->groups.attach(group, impl_->shard.index_of(*qp));
}

Result<void> Engine::detach_multicast(QpNum number, const wire::Gid& group) {
  const Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return no_such_qp();
  return impl_->groups.detach(group, impl_->shard.index_of(*qp));
}

Result<SrqIndex> Engine::create_srq(const SrqInit& init) {
  const auto index = impl_->shard.srqs.acquire();
  if (!index) return Error{ENOMEM, "the device has no shared receive queue left"};
  transport::Srq srq;
  srq.ring = init.ring;
  srq.context = init.context;
  srq.pd = init.pd;
  srq.max_sge = std::min(init.max_sge, transport::kMaxSge);
  impl_->shard.srqs[*index] = srq;
  return SrqIndex{*index};
}

Result<void> Engine::resize_srq(SrqIndex srq, const transport::RingRef& ring) {
  if (!impl_->shard.srqs.is_live(srq.value)) return no_such_srq();
  impl_->shard.srqs[srq.value].ring = ring;
  impl_->shard.srqs[srq.value].next = 0;
  return {};
}

Result<void> Engine::set_srq_limit(SrqIndex srq, std::uint32_t limit) {
  if (!impl_->shard.srqs.is_live(srq.value)) return no_such_srq();
  impl_->shard.srqs[srq.value].limit = limit;
  transport::check_srq_limit(impl_->shard, srq);
  return {};
}

Result<SrqState> Engine::query_srq(SrqIndex srq) const {
  if (!impl_->shard.srqs.is_live(srq.value)) return no_such_srq();
  const transport::Srq& found = impl_->shard.srqs[srq.value];
  return SrqState{found.limit, found.has_failed};
}

Result<void> Engine::destroy_srq(SrqIndex srq) {
  if (!impl_->shard.srqs.is_live(srq.value)) return no_such_srq();
  if (impl_->shard.srqs[srq.value].users != 0) return Error{EBUSY, "queue pairs use the SRQ"};
  impl_->shard.srqs.release(srq.value);
  return {};
}

Result<QpNum> Engine::create_qp(const transport::QpInit& init) {
  transport::Shard& shard = impl_->shard;
  if (init.type == transport::QpType::kGsi) return Error{EOPNOTSUPP, "QP1 is reserved"};
  const bool has_srq = !init.srq.is_none();
  if (has_srq && !shard.srqs.is_live(init.srq.value)) return no_such_srq();
  if (!shard.cqs.is_live(init.send_cq.value) || !shard.cqs.is_live(init.recv_cq.value)) {
    return Error{EINVAL, "no such completion queue"};
  }
  if (!init.send_ring.is_present() || init.recv_ring.is_present() == has_srq) {
    return Error{EINVAL, "a queue pair needs a send ring, and a receive ring or an SRQ"};
  }
  auto index = impl_->quarantine.size() > kQuarantinedQps ? std::nullopt : shard.qps.acquire();
  if (!index && !impl_->quarantine.empty()) {
    shard.qps.release(impl_->quarantine.front());
    impl_->quarantine.pop_front();
    index = shard.qps.acquire();
  }
  if (!index) return Error{ENOMEM, "the device has no queue pair left"};
  const std::uint32_t generation = shard.qps[*index].generation + 1;
  Qp qp;
  qp.generation = generation & (0xff'ffff >> kQpIndexBits);
  qp.number = QpNum{qp.generation << kQpIndexBits | *index};
  qp.type = init.type;
  qp.signal_all = init.signal_all;
  qp.context = init.context;
  qp.pd = init.pd;
  qp.send_cq = init.send_cq;
  qp.recv_cq = init.recv_cq;
  qp.srq = init.srq;
  qp.send_ring = init.send_ring;
  qp.recv_ring = init.recv_ring;
  qp.caps = init.caps;
  qp.limits = {std::min(init.caps.max_send_sge, transport::kMaxSge),
               std::min(init.caps.max_recv_sge, transport::kMaxSge),
               std::min(init.caps.max_inline_bytes, transport::kMaxInlineBytes)};
  // A datagram is one packet of at most the port's MTU.
  if (qp.is_datagram()) qp.path_mtu = impl_->config.max_mtu_bytes;
  for (Time& deadline : qp.deadlines) deadline = Time::never();
  shard.qps[*index] = qp;
  ++shard.cqs[init.send_cq.value].users;
  ++shard.cqs[init.recv_cq.value].users;
  if (has_srq) ++shard.srqs[init.srq.value].users;
  return qp.number;
}

void Engine::Impl::apply_attributes(Qp& qp, const QpAttr& attr, std::uint32_t mask) {
  using namespace transport;
  QpAttr& a = qp.attr;
  if ((mask & kQpEnSqdAsyncNotify) != 0) a.sqd_async_notify = attr.sqd_async_notify;
  if ((mask & kQpAccessFlags) != 0) a.access = attr.access;
  if ((mask & kQpPkeyIndex) != 0) a.pkey_index = attr.pkey_index;
  if ((mask & kQpPort) != 0) a.port = attr.port;
  if ((mask & kQpQkey) != 0) a.qkey = attr.qkey;
  if ((mask & kQpAv) != 0) {
    a.av = attr.av;
    qp.path = wire::make_path_template(attr.av.headers);
  }
  if ((mask & kQpPathMtu) != 0) a.path_mtu_bytes = qp.path_mtu = attr.path_mtu_bytes;
  if ((mask & kQpTimeout) != 0) a.timeout = attr.timeout;
  if ((mask & kQpRetryCnt) != 0) qp.retries_left = a.retry_count = attr.retry_count;
  if ((mask & kQpRnrRetry) != 0) qp.rnr_retries_left = a.rnr_retry = attr.rnr_retry;
  if ((mask & kQpRqPsn) != 0) {
    a.rq_psn = attr.rq_psn;
    qp.expected_psn = attr.rq_psn;
    qp.acked_psn = attr.rq_psn.prev();
  }
  if ((mask & kQpMaxQpRdAtomic) != 0) a.max_rd_atomic = attr.max_rd_atomic;
  if ((mask & kQpMinRnrTimer) != 0) a.min_rnr_timer = attr.min_rnr_timer;
  if ((mask & kQpSqPsn) != 0) {
    a.sq_psn = attr.sq_psn;
    qp.next_psn = qp.unacked_psn = qp.sent_psn = attr.sq_psn;
  }
  if ((mask & kQpMaxDestRdAtomic) != 0) a.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & kQpPathMigState) != 0) a.path_mig_state = attr.path_mig_state;
  if ((mask & kQpDestQpn) != 0) a.destination_qp = attr.destination_qp;
  if ((mask & kQpRateLimit) != 0) a.rate_limit_kbps = attr.rate_limit_kbps;
}

void Engine::Impl::enter_state(Time now, Qp& qp, QpState to) {
  switch (to) {
    case QpState::kReset:
      transport::drop_all_state(shard, qp);
      qp.state = QpState::kReset;
      qp.msn = 0;
      qp.incoming = transport::Incoming::kNone;
      qp.is_nak_sent = qp.is_communication_established = qp.is_sq_draining = false;
      // What is still in the rings is gone, without completions (10.3.1).
      qp.sq_next += shard.queues.available(qp.send_ring, qp.sq_next);
      qp.sq_retired = qp.sq_published = qp.sq_next;
      shard.queues.retire(qp.send_ring, qp.sq_retired);
      transport::drop_receives(shard, qp);
      qp.attr = QpAttr{};
      break;
    case QpState::kErr:
      transport::enter_error(shard, qp, now);
      break;
    case QpState::kSqd:
      qp.is_sq_draining = true;
      qp.state = QpState::kSqd;
      if (qp.record_head == transport::kNoIndex) {
        qp.is_sq_draining = false;
        if (qp.attr.sqd_async_notify) {
          transport::raise_event(shard, qp, transport::AsyncEventType::kSqDrained);
        }
      }
      break;
    case QpState::kRts:
      // What was posted while the send queue was in error is flushed, not sent.
      if (qp.state == QpState::kSqe) transport::flush_whole_send_queue(shard, qp, now);
      qp.is_sq_draining = false;
      qp.state = QpState::kRts;
      transport::on_doorbell(shard, qp, now);
      break;
    case QpState::kInit:
    case QpState::kRtr:
    case QpState::kSqe:
      qp.state = to;
      break;
  }
}

Result<void> Engine::modify_qp(Time now, QpNum number, const QpAttr& attr, std::uint32_t mask) {
  Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return no_such_qp();
  const QpState to = (mask & transport::kQpState) != 0 ? attr.state : qp->state;
  if ((mask & transport::kQpCurState) != 0 && attr.current_state != qp->state) {
    return Error{EINVAL, "the queue pair is not in the state that the caller expects"};
  }
  if (!transport::is_modify_legal(qp->type, qp->state, to, mask)) {
    return Error{EINVAL, "the transition or its attribute mask is not allowed"};
  }
  if (auto error = check_values(attr, mask, impl_->config)) return std::move(*error);
  impl_->apply_attributes(*qp, attr, mask);
  if (to != qp->state || to == QpState::kReset) impl_->enter_state(now, *qp, to);
  transport::forget_work_requests(impl_->shard);
  return {};
}

Result<QpAttr> Engine::query_qp(QpNum number) const {
  const Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return no_such_qp();
  QpAttr attr = qp->attr;
  attr.state = attr.current_state = qp->state;
  attr.is_sq_draining = qp->is_sq_draining;
  attr.rq_psn = qp->expected_psn;
  attr.sq_psn = qp->next_psn;
  return attr;
}

Result<void> Engine::destroy_qp(Time, QpNum number) {
  Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return no_such_qp();
  if (qp->held_frames != 0) return Error{EAGAIN, "frames that reference its memory are on the way"};
  transport::Shard& shard = impl_->shard;
  const std::uint32_t index = shard.index_of(*qp);
  transport::drop_all_state(shard, *qp);
  impl_->groups.forget(index);
  if (qp->is_scheduled) shard.runnable.remove(index);
  shard.deadlines.forget(index);
  --shard.cqs[qp->send_cq.value].users;
  --shard.cqs[qp->recv_cq.value].users;
  if (!qp->srq.is_none()) {
    transport::drop_receives(shard, *qp);
    --shard.srqs[qp->srq.value].users;
  }
  const std::uint32_t generation = qp->generation;
  *qp = Qp{};
  qp->generation = generation;
  impl_->quarantine.push_back(index);
  return {};
}

std::optional<QpSnapshot> Engine::snapshot(QpNum number) const {
  const Qp* qp = impl_->find_qp(number);
  if (qp == nullptr) return std::nullopt;
  QpSnapshot out = snapshot_of(*qp);
  out.attr.state = qp->state;
  return out;
}

std::size_t Engine::list_qps(std::uint32_t from, std::span<QpSnapshot> out) const {
  std::size_t count = 0;
  const auto& qps = impl_->shard.qps;
  for (std::uint32_t i = std::max(from, impl_->config.first_qpn);
       i < qps.high_water() && count < out.size(); ++i) {
    if (!qps.is_live(i) || qps[i].number.is_none()) continue;
    out[count] = snapshot_of(qps[i]);
    out[count++].attr.state = qps[i].state;
  }
  return count;
}

ObjectCounts Engine::counts() const {
  const transport::Shard& shard = impl_->shard;
  const auto resting = static_cast<std::uint32_t>(impl_->quarantine.size());
  return {
      .qps = shard.qps.in_use() - impl_->config.first_qpn - resting,
      .cqs = shard.cqs.in_use(),
      .srqs = shard.srqs.in_use(),
      .inflight_requests = shard.records.in_use(),
      .responder_resources = shard.resources.in_use(),
      .taken_receives = shard.taken.in_use(),
  };
}

}  // namespace rocemu::engine
