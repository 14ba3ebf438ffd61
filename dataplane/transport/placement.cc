#include "dataplane/transport/placement.h"

#include "dataplane/memory/moves.h"
#include "dataplane/transport/resources.h"
#include "dataplane/transport/responder_steps.h"
#include "rocemu/base/bytes.h"

namespace rocemu::transport {
namespace {

// Placement types and selectivity levels of the FETH (A19.4.1).
constexpr std::uint8_t kGlobalVisibility = 1;
constexpr std::uint8_t kPersistence = 2;
constexpr std::uint8_t kRangeLevel = 0;
constexpr std::uint8_t kRegionLevel = 1;

// The rights that a flush needs of the QP, and of the region or window.
std::uint32_t rights_of(const wire::Feth& feth) {
  return ((feth.placement_type & kGlobalVisibility) != 0 ? memory::kAccessFlushGlobal : 0u) |
         ((feth.placement_type & kPersistence) != 0 ? memory::kAccessFlushPersistent : 0u);
}

bool is_legal(const wire::Feth& feth) {
  return feth.placement_type != 0 &&
         (feth.placement_type & ~(kGlobalVisibility | kPersistence)) == 0 &&
         (feth.selectivity_level == kRangeLevel || feth.selectivity_level == kRegionLevel);
}

DropReason refuse_key(Shard& shard, Qp& qp, Psn psn, Time now) {
  shard.counters.add(Counter::key_violations);
  return refuse(shard, qp, wire::NakCode::kRemoteAccessError, psn, now);
}

// The request is done: its response is due.
void answer(Shard& shard, Qp& qp, const wire::Packet& packet, std::uint32_t index) {
  ResponderResource& resource = shard.resources[index];
  resource.first_psn = packet.bth.psn;
  resource.kind = ResponderResource::Kind::kPlacement;
  accept_request(shard, qp, packet, 1);
  resource.msn = qp.msn;
  make_due(shard, qp, resource);
}

// A resource for the request, or why there is none. Everything before it is placed.
DropReason begin(Shard& shard, Qp& qp, Psn psn, Time now, std::uint32_t& index) {
  commit_moves(shard, now);  // earlier WRITEs of any QP come before
  if (qp.state == QpState::kErr) return DropReason::qp_not_ready;
  const MakeResult made = make_resource(shard, qp);
  index = made.index;
  if (made.index != kNoIndex) return DropReason::none;
  if (made.is_pool_empty) return DropReason::resources_exhausted;
  return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
}

}  // namespace

DropReason on_flush(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::Reth& reth = packet.reth;
  shard.counters.add(Counter::rx_flush_requests);
  const std::uint32_t rights = rights_of(packet.feth);
  if (!is_legal(packet.feth) || (qp.attr.access & rights) != rights ||
      qp.attr.max_dest_rd_atomic == 0 || reth.dma_length > kMaxMessageBytes) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  // At region level the address and length mean nothing; a range without bytes still has a key.
  const bool is_range = packet.feth.selectivity_level == kRangeLevel;
  const memory::MrView view = lookup_remote(shard, qp, reth.rkey, is_range ? reth.va : 0,
                                            is_range ? reth.dma_length : 0, rights);
  if (view.fault != memory::MrFault::kNone) return refuse_key(shard, qp, psn, now);
  std::uint32_t index = kNoIndex;
  const DropReason begun = begin(shard, qp, psn, now, index);
  if (index == kNoIndex) return begun;
  // Bytes that the port moved are visible to every reader. Persistence is more.
  if ((packet.feth.placement_type & kPersistence) != 0 && !shard.memory.persist(view.space)) {
    shard.counters.add(Counter::memory_faults);
    drop_newest_resource(shard, qp);
    return refuse(shard, qp, wire::NakCode::kRemoteOperationalError, psn, now);
  }
  answer(shard, qp, packet, index);
  return DropReason::none;
}

DropReason on_atomic_write(Shard& shard, Qp& qp, const wire::Packet& packet, Time now) {
  const Psn psn = packet.bth.psn;
  const wire::Reth& reth = packet.reth;
  shard.counters.add(Counter::rx_atomic_requests);
  if ((qp.attr.access & memory::kAccessRemoteWrite) == 0 ||
      reth.dma_length != sizeof(std::uint64_t) || (reth.va & 7) != 0 ||
      qp.attr.max_dest_rd_atomic == 0) {
    return refuse(shard, qp, wire::NakCode::kInvalidRequest, psn, now);
  }
  const memory::MrView view =
      lookup_remote(shard, qp, reth.rkey, reth.va, reth.dma_length, memory::kAccessRemoteWrite);
  if (view.fault != memory::MrFault::kNone) return refuse_key(shard, qp, psn, now);
  // Aligned for the peer is not aligned here when the region's addresses are shifted.
  if ((view.client_va & 7) != 0) {
    return refuse(shard, qp, wire::NakCode::kRemoteOperationalError, psn, now);
  }
  std::uint32_t index = kNoIndex;
  const DropReason begun = begin(shard, qp, psn, now, index);
  if (index == kNoIndex) return begun;
  memory::AtomicMove op{.space = view.space,
                        .kind = memory::AtomicKind::kWrite,
                        .client_va = view.client_va,
                        .direct = memory::is_direct(view, 8) ? memory::direct_at(view) : nullptr,
                        .swap_or_add = load<std::uint64_t>(packet.payload.data())};
  shard.memory.atomic(op);
  if (op.status != memory::MoveStatus::kDone) {
    shard.counters.add(Counter::memory_faults);
    drop_newest_resource(shard, qp);
    return refuse(shard, qp, wire::NakCode::kRemoteOperationalError, psn, now);
  }
  answer(shard, qp, packet, index);
  return DropReason::none;
}

}  // namespace rocemu::transport
