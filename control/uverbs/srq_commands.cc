// Shared receive queues. Errors are those of the rxe driver.
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <algorithm>

#include "control/uverbs/call.h"
#include "control/uverbs/rings.h"
#include "dataplane/transport/transport_limits.h"
#include "rocemu/abi/rxe_ring.h"

namespace rocemu::control::uverbs {
namespace {

// enum ib_srq_attr_mask
constexpr std::uint32_t kSrqMaxWr = 1 << 0;
constexpr std::uint32_t kSrqLimit = 1 << 1;

Result<Ring> make_srq_ring(VerbsContext& context, std::uint32_t entries, std::uint32_t max_sge) {
  return context.make_ring(
      entries, static_cast<std::uint32_t>(rxe::kRecvWqeBytes + max_sge * rxe::kSgeBytes));
}

bool is_size_legal(std::uint32_t max_wr) { return max_wr != 0 && max_wr <= transport::kMaxSrqWr; }

// A ring of another size; receives that are posted move into it.
Result<Ring> resize(VerbsContext& context, const SharedReceiveQueue& srq, std::uint32_t max_wr) {
  auto ring = make_srq_ring(context, max_wr, srq.max_sge);
  if (!ring) return ring.error();
  Device& device = context.device;
  const auto moved = device.worker.run([&]() -> Result<void> {
    if (!move_elements(context, srq.ring, *ring, max_wr)) {
      return Error{EINVAL, "more receives are posted than the new size holds"};
    }
    return device.worker.engine(device.index).resize_srq(srq.index, ring->ref);
  });
  if (moved) return *ring;
  context.free_ring(*ring);
  return moved.error();
}

}  // namespace

int create_srq(Call& call) {
  const auto in = call.take<ib_uverbs_create_srq>();
  VerbsContext& context = call.context;
  ProtectionDomain* pd = context.pds.find(in.pd_handle);
  if (pd == nullptr || !is_size_legal(in.max_wr) || in.max_sge > transport::kMaxSge) return EINVAL;
  const auto handle = context.srqs.next_handle();
  if (!handle) return ENOMEM;
  SharedReceiveQueue srq;
  srq.pd = in.pd_handle;
  srq.user_handle = in.user_handle;
  srq.max_sge = std::max(1u, in.max_sge);
  auto ring = make_srq_ring(context, in.max_wr, srq.max_sge);
  if (!ring) return ring.error().code;
  srq.ring = *ring;
  Device& device = context.device;
  const auto made = device.worker.run([&] {
    return device.worker.engine(device.index)
        .create_srq({context.identity.id, pd->id, ring->ref, srq.max_sge});
  });
  if (!made) {
    context.free_ring(*ring);
    return made.error().code;
  }
  srq.index = made.value();
  device.srq_owners[srq.index.value] = {&context, *handle};
  ++pd->users;
  ib_uverbs_create_srq_resp r{};
  r.srq_handle = *handle;
  r.max_wr = VerbsContext::usable_entries(srq.ring);
  r.max_sge = srq.max_sge;
  r.srqn = srq.index.value;
  call.put(r);
  call.put_driver(rxe_create_srq_resp{info_of(srq.ring), srq.index.value, 0}, false);
  context.srqs.add(std::move(srq));
  return 0;
}

int modify_srq(Call& call) {
  const auto in = call.take<ib_uverbs_modify_srq>();
  VerbsContext& context = call.context;
  SharedReceiveQueue* srq = context.srqs.find(in.srq_handle);
  if (srq == nullptr || (in.attr_mask & ~(kSrqMaxWr | kSrqLimit)) != 0) return EINVAL;
  Device& device = context.device;
  const auto state =
      device.worker.run([&] { return device.worker.engine(device.index).query_srq(srq->index); });
  if (!state || state->has_failed) return EINVAL;
  const bool resizes = (in.attr_mask & kSrqMaxWr) != 0;
  const bool arms = (in.attr_mask & kSrqLimit) != 0;
  const std::uint32_t limit = arms ? in.srq_limit : state->limit;
  const std::uint32_t size = resizes ? in.max_wr : VerbsContext::usable_entries(srq->ring);
  if (!is_size_legal(size) || limit > size) return EINVAL;
  if (resizes) {
    // Where the provider wants to read the new mapping: a pointer in the command, not the response.
    const auto driver = call.take_behind<rxe_modify_srq_cmd>(sizeof(ib_uverbs_modify_srq));
    if (!driver) return EINVAL;
    auto ring = resize(context, *srq, size);
    if (!ring) return ring.error().code;
    // The client unmaps the old ring itself; its pages are gone for both.
    context.free_ring(srq->ring);
    srq->ring = *ring;
    call.patch(driver->mmap_info_addr, info_of(*ring));
  }
  if (arms) {
    device.worker.run(
        [&] { (void)device.worker.engine(device.index).set_srq_limit(srq->index, limit); });
  }
  return 0;
}

int query_srq(Call& call) {
  SharedReceiveQueue* srq = call.context.srqs.find(call.take<ib_uverbs_query_srq>().srq_handle);
  if (srq == nullptr) return EINVAL;
  Device& device = call.context.device;
  const auto state =
      device.worker.run([&] { return device.worker.engine(device.index).query_srq(srq->index); });
  if (!state || state->has_failed) return EINVAL;
  ib_uverbs_query_srq_resp r{};
  r.max_wr = VerbsContext::usable_entries(srq->ring);
  r.max_sge = srq->max_sge;
  r.srq_limit = state->limit;
  call.put(r);
  return 0;
}

int destroy_srq(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_destroy_srq>().srq_handle;
  SharedReceiveQueue* srq = call.context.srqs.find(handle);
  if (srq == nullptr) return EINVAL;
  if (srq->users != 0) return EBUSY;
  ib_uverbs_destroy_srq_resp r{};
  r.events_reported = call.context.destroy_srq(handle, *srq);
  call.put(r);
  return 0;
}

}  // namespace rocemu::control::uverbs
