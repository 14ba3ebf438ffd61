// Completion channels and completion queues.
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "control/uverbs/call.h"
#include "control/uverbs/rings.h"
#include "dataplane/transport/transport_limits.h"
#include "rocemu/abi/commands.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control::uverbs {
namespace {

static_assert(sizeof(ib_uverbs_wc) == rxe::kWcBytes);
static_assert(offsetof(ib_uverbs_wc, wr_id) == rxe::kWcWrId);
static_assert(offsetof(ib_uverbs_wc, status) == rxe::kWcStatus);
static_assert(offsetof(ib_uverbs_wc, opcode) == rxe::kWcOpcode);
static_assert(offsetof(ib_uverbs_wc, vendor_err) == rxe::kWcVendorErr);
static_assert(offsetof(ib_uverbs_wc, byte_len) == rxe::kWcByteLen);
static_assert(offsetof(ib_uverbs_wc, ex) == rxe::kWcEx);
static_assert(offsetof(ib_uverbs_wc, qp_num) == rxe::kWcQpNum);
static_assert(offsetof(ib_uverbs_wc, src_qp) == rxe::kWcSrcQp);
static_assert(offsetof(ib_uverbs_wc, wc_flags) == rxe::kWcFlags);
static_assert(offsetof(ib_uverbs_wc, pkey_index) == rxe::kWcPkeyIndex);
static_assert(offsetof(ib_uverbs_wc, slid) == rxe::kWcSlid);
static_assert(offsetof(ib_uverbs_wc, sl) == rxe::kWcSl);
static_assert(offsetof(ib_uverbs_wc, dlid_path_bits) == rxe::kWcDlidPathBits);
static_assert(offsetof(ib_uverbs_wc, port_num) == rxe::kWcPortNum);
static_assert(offsetof(rxe_queue_buf, log2_elem_size) == rxe::kQueueLog2ElemSize);
static_assert(offsetof(rxe_queue_buf, index_mask) == rxe::kQueueIndexMask);
static_assert(offsetof(rxe_queue_buf, producer_index) == rxe::kQueueProducerIndex);
static_assert(offsetof(rxe_queue_buf, consumer_index) == rxe::kQueueConsumerIndex);
static_assert(sizeof(rxe_queue_buf) == rxe::kQueueData);

struct CqRequest {
  std::uint64_t user_handle = 0;
  std::uint32_t cqe = 0;
  std::uint32_t comp_vector = 0;
  std::int32_t channel = -1;
};

struct CqMade {
  std::uint32_t handle = 0;
  std::uint32_t cqe = 0;
  mminfo ring{};
};

int make_cq(VerbsContext& context, const CqRequest& in, CqMade& out) {
  if (in.cqe == 0 || in.cqe > transport::kMaxCqe) return EINVAL;
  if (in.comp_vector >= comp_vector_count()) return EINVAL;
  CompletionChannel* channel = nullptr;
  if (in.channel >= 0) {
    channel = context.channels.find(static_cast<std::uint32_t>(in.channel));
    if (channel == nullptr) return EINVAL;
  }
  const auto handle = context.cqs.next_handle();
  if (!handle) return ENOMEM;
  auto ring = context.make_ring(in.cqe, rxe::kCqElementBytes);
  if (!ring) return ring.error().code;
  engine::CqInit init{.context = context.identity.id, .ring = ring->ref, .arm = {}};
  if (channel != nullptr) {
    init.arm = {context.doorbell_region,
                offsetof(DoorbellPage, cq_arm) + handle_slot(*handle) * sizeof(std::uint32_t)};
  }
  Device& device = context.device;
  const dpdk::CompletionTarget target{channel != nullptr ? channel->pipe.write_fd() : -1,
                                      in.user_handle};
  const auto made = device.worker.run([&] {
    auto index = device.worker.engine(device.index).create_cq(init);
    if (index) device.worker.bind_cq(context.identity.id, handle_slot(*handle), *index, target);
    return index;
  });
  if (!made) {
    context.free_ring(*ring);
    return made.error().code;
  }
  CompletionQueue cq;
  cq.index = made.value();
  cq.ring = *ring;
  cq.user_handle = in.user_handle;
  if (channel != nullptr) {
    cq.channel = static_cast<std::uint32_t>(in.channel);
    ++channel->users;
  }
  context.cqs.add(std::move(cq));
  device.cq_owners[made.value().value] = {&context, *handle};
  out.handle = *handle;
  out.cqe = VerbsContext::usable_entries(*ring);
  out.ring = info_of(*ring);
  return 0;
}

}  // namespace

int create_comp_channel(Call& call) {
  VerbsContext& context = call.context;
  const auto handle = context.channels.next_handle();
  if (!handle) return ENOMEM;
  auto pipe = EventPipe::make(8);
  if (!pipe) return pipe.error().code;
  CompletionChannel& channel = context.add_channel(*handle, std::move(*pipe));
  call.put(ib_uverbs_create_comp_channel_resp{});
  call.fd = channel.pipe.take_read_end();
  call.fd_offset = offsetof(ib_uverbs_create_comp_channel_resp, fd);
  call.channel_handle = *handle;
  return 0;
}

int create_cq(Call& call) {
  const auto in = call.take<ib_uverbs_create_cq>();
  CqMade made;
  const int error =
      make_cq(call.context, {in.user_handle, in.cqe, in.comp_vector, in.comp_channel}, made);
  if (error != 0) return error;
  ib_uverbs_create_cq_resp r{};
  r.cq_handle = made.handle;
  r.cqe = made.cqe;
  call.put(r);
  call.put_driver(rxe_create_cq_resp{made.ring}, false);
  return 0;
}

int create_cq_ex(Call& call) {
  const auto in = call.take<ib_uverbs_ex_create_cq>();
  if (in.comp_mask != 0 || in.flags != 0) return EOPNOTSUPP;
  CqMade made;
  const int error =
      make_cq(call.context, {in.user_handle, in.cqe, in.comp_vector, in.comp_channel}, made);
  if (error != 0) return error;
  ib_uverbs_ex_create_cq_resp r{};
  r.base.cq_handle = made.handle;
  r.base.cqe = made.cqe;
  r.response_length = static_cast<std::uint32_t>(std::min(sizeof r, call.core_room));
  call.put(r);
  call.put_driver(rxe_create_cq_resp{made.ring}, true);
  return 0;
}

int resize_cq(Call& call) {
  const auto in = call.take<ib_uverbs_resize_cq>();
  VerbsContext& context = call.context;
  CompletionQueue* cq = context.cqs.find(in.cq_handle);
  if (cq == nullptr || in.cqe == 0 || in.cqe > transport::kMaxCqe) return EINVAL;
  auto ring = context.make_ring(in.cqe, rxe::kCqElementBytes);
  if (!ring) return ring.error().code;
  Device& device = context.device;
  const auto moved = device.worker.run([&]() -> Result<void> {
    const auto count = move_elements(context, cq->ring, *ring, in.cqe);
    if (!count) return Error{EINVAL, "more completions wait than the new size holds"};
    return device.worker.engine(device.index).resize_cq(cq->index, ring->ref, *count);
  });
  if (!moved) {
    context.free_ring(*ring);
    return moved.error().code;
  }
  // The client unmaps the old ring itself; its pages are gone for both.
  context.free_ring(cq->ring);
  cq->ring = *ring;
  ib_uverbs_resize_cq_resp r{};
  r.cqe = VerbsContext::usable_entries(*ring);
  call.put(r);
  call.put_driver(rxe_resize_cq_resp{info_of(*ring)}, false);
  return 0;
}

int req_notify_cq(Call& call) {
  // The shim arms through the doorbell page; this is the way of a client that does not.
  const auto in = call.take<ib_uverbs_req_notify_cq>();
  CompletionQueue* cq = call.context.cqs.find(in.cq_handle);
  if (cq == nullptr) return EINVAL;
  Device& device = call.context.device;
  call.context.arm(in.cq_handle, in.solicited_only != 0 ? kArmedSolicited : kArmedAny);
  device.worker.run(
      [&] { device.worker.engine(device.index).on_cq_armed(device.worker.now(), cq->index); });
  return 0;
}

int destroy_cq(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_destroy_cq>().cq_handle;
  CompletionQueue* cq = call.context.cqs.find(handle);
  if (cq == nullptr) return EINVAL;
  if (cq->users != 0) return EBUSY;
  const auto reported = call.context.destroy_cq(handle, *cq);
  ib_uverbs_destroy_cq_resp r{};
  r.comp_events_reported = reported.completion_events;
  r.async_events_reported = reported.async_events;
  call.put(r);
  return 0;
}

int drop_completions(Call& call) {
  const QueuePair* qp = call.context.qps.find(call.take<abi::DropCompletions>().qp_handle);
  if (qp == nullptr) return EINVAL;
  Device& device = call.context.device;
  const auto dropped = device.worker.run(
      [&] { return device.worker.engine(device.index).drop_completions(qp->number); });
  return dropped ? 0 : dropped.error().code;
}

}  // namespace rocemu::control::uverbs
