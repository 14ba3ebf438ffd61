#include "control/verbs_context.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>

#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control {
namespace {

constexpr std::uint64_t kDoorbellBytes =
    (sizeof(DoorbellPage) + RingAllocator::kPageBytes - 1) & ~(RingAllocator::kPageBytes - 1);
constexpr std::uint32_t kMaxChannels = 1u << 16;
constexpr std::size_t kAsyncRecordBytes = 16;
constexpr std::chrono::milliseconds kAsyncRetry{10};

}  // namespace

Result<std::unique_ptr<VerbsContext>> VerbsContext::open(Device& device,
                                                         memory::AddressSpaces& spaces,
                                                         const Identity& identity) {
  auto memory = ContextMemory::make();
  if (!memory) return memory.error();
  auto doorbells = SharedPages::make("rocemu-doorbells", kDoorbellBytes);
  if (!doorbells) return doorbells.error();
  auto pipe = EventPipe::make(kAsyncRecordBytes);
  if (!pipe) return pipe.error();
  UniqueFd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.is_open()) return Error{errno, "no eventfd"};
  const auto space = spaces.open(identity.pid);
  if (!space) return space.error();
  std::unique_ptr<VerbsContext> context(new VerbsContext(device, spaces, identity,
                                                         std::move(*memory), std::move(*doorbells),
                                                         std::move(*pipe), std::move(wake_fd)));
  context->space = space.value();
  const bool is_served = device.worker.run([&] {
    auto& queues = device.worker.queues();
    context->ring_region_ = queues.add_region(context->memory_.bytes());
    context->doorbell_region = queues.add_region(context->doorbells_.bytes);
    if (context->doorbell_region.is_none()) return false;
    device.worker.add_context(identity.id, device.index, context->page(), context->wake_fd(),
                              context->memory_.bytes());
    return true;
  });
  if (!is_served) return Error{ENOMEM, "too many contexts"};
  return context;
}

VerbsContext::VerbsContext(Device& the_device, memory::AddressSpaces& the_spaces,
                           const Identity& who, ContextMemory memory, SharedPages doorbells,
                           EventPipe pipe, UniqueFd wake_fd)
    : device(the_device),
      spaces(the_spaces),
      identity(who),
      async_pipe(std::move(pipe)),
      pds(kMaxPds),
      mrs(kMaxMrs),
      mws(kMaxMws),
      channels(kMaxChannels),
      cqs(kMaxCqSlots),
      srqs(kMaxSrqs),
      qps(kMaxQpSlots),
      ahs(kMaxAhs),
      memory_(std::move(memory)),
      doorbells_(std::move(doorbells)),
      wake_fd_(std::move(wake_fd)) {
  page()->magic = kDoorbellMagic;
  page()->version = kDoorbellVersion;
}

VerbsContext::~VerbsContext() {
  if (async_retry_) device.loop.cancel(*async_retry_);
  channels.for_each([&](std::uint32_t, CompletionChannel& channel) {
    if (!channel.is_closed) device.loop.remove(channel.pipe.write_fd());
  });
  destroy_queue_pairs();
  // Everything else that names the client's memory goes in one job; after it no table leads there.
  device.worker.run([&] {
    cqs.for_each([&](std::uint32_t handle, CompletionQueue& cq) {
      (void)device.worker.unbind_cq(identity.id, handle_slot(handle));
      (void)device.worker.engine(device.index).destroy_cq(cq.index);
    });
    ahs.for_each([&](std::uint32_t, AddressHandle& ah) {
      (void)device.worker.engine(device.index).destroy_address_handle(ah.number);
    });
    srqs.for_each([&](std::uint32_t, SharedReceiveQueue& srq) {
      (void)device.worker.engine(device.index).destroy_srq(srq.index);
    });
    // Windows first: a region that one is bound to does not go.
    mws.for_each([&](std::uint32_t, MemoryWindow& mw) {
      (void)device.regions.retire(mw.index);
      device.regions.release(mw.index);
    });
    mrs.for_each([&](std::uint32_t, MemoryRegion& mr) {
      (void)device.regions.retire(mr.keys.index);
      device.regions.release(mr.keys.index);
    });
    device.worker.remove_context(identity.id);
    auto& queues = device.worker.queues();
    if (!ring_region_.is_none()) queues.remove_region(ring_region_);
    if (!doorbell_region.is_none()) queues.remove_region(doorbell_region);
    if (!space.is_none()) spaces.close(space);
  });
  cqs.for_each([&](std::uint32_t, CompletionQueue& cq) { device.cq_owners.erase(cq.index.value); });
  srqs.for_each(
      [&](std::uint32_t, SharedReceiveQueue& srq) { device.srq_owners.erase(srq.index.value); });
  device.pd_count -= pds.count();
  device.ah_count -= ahs.count();
  device.mw_count -= mws.count();
}

void VerbsContext::destroy_queue_pairs() {
  // In pieces, so that the end of a client with very many does not hold up the others' packets.
  constexpr std::size_t kPiece = 256;
  std::vector<std::pair<std::uint32_t, QpNum>> all;
  qps.for_each([&](std::uint32_t handle, QueuePair& qp) { all.emplace_back(handle, qp.number); });
  for (std::size_t begin = 0; begin < all.size(); begin += kPiece) {
    const auto piece = std::span(all).subspan(begin, std::min(kPiece, all.size() - begin));
    device.worker.run([&] {
      for (const auto& [handle, number] : piece) {
        device.worker.unbind_qp(identity.id, handle_slot(handle));
        (void)device.worker.engine(device.index).destroy_qp(device.worker.now(), number);
      }
    });
    for (const auto& [handle, number] : piece) device.qp_owners.erase(number.value);
  }
}

void VerbsContext::suspend_memory() {
  device.worker.run([&] { spaces.suspend(space); });
}

void VerbsContext::resume_memory() {
  device.worker.run([&] { spaces.resume(space); });
}

void VerbsContext::push_async(std::uint64_t element, std::uint32_t type) {
  std::array<std::byte, kAsyncRecordBytes> record{};
  store(record.data(), element);
  store(record.data() + 8, type);
  async_pipe.push(record);
  if (!async_retry_) retry_async();
}

void VerbsContext::retry_async() {
  async_retry_.reset();
  if (async_pipe.flush()) return;
  async_retry_ = device.loop.after(kAsyncRetry, [this] { retry_async(); });
}

void VerbsContext::on_async_event(engine::AsyncEventType type, std::uint32_t handle) {
  const auto code = static_cast<std::uint32_t>(type);
  if (type == engine::AsyncEventType::kCqError) {
    CompletionQueue& cq = *cqs.find(handle);
    ++cq.async_events;
    push_async(cq.user_handle, code);
    return;
  }
  if (engine::is_srq_event(type)) {
    SharedReceiveQueue& srq = *srqs.find(handle);
    ++srq.async_events;
    push_async(srq.user_handle, code);
    return;
  }
  QueuePair& qp = *qps.find(handle);
  ++qp.async_events;
  push_async(qp.user_handle, code);
}

CompletionChannel& VerbsContext::add_channel(std::uint32_t handle, EventPipe pipe) {
  CompletionChannel& channel = channels.add({std::move(pipe), 0});
  // Asked for no event, epoll reports the one that is left: nobody can read the pipe any more.
  device.loop.add(channel.pipe.write_fd(), 0, [this, handle](std::uint32_t) {
    CompletionChannel& closed = *channels.find(handle);
    device.loop.remove(closed.pipe.write_fd());
    closed.is_closed = true;
    release_channel_if_unused(handle);
  });
  return channel;
}

void VerbsContext::release_channel_if_unused(std::uint32_t handle) {
  const CompletionChannel& channel = *channels.find(handle);
  if (channel.is_closed && channel.users == 0) channels.remove(handle);
}

void VerbsContext::set_takes_sends(std::uint32_t handle, QueuePair& qp, bool takes_sends) {
  qp.takes_sends = takes_sends;
  // relaxed: the reply to the modify, which the client waits for, orders it.
  page()->qp_takes_sends[handle_slot(handle)].store(takes_sends ? 1 : 0, std::memory_order_relaxed);
}

std::uint32_t VerbsContext::withdraw_async(std::uint64_t element) {
  return async_pipe.withdraw(element);
}

void VerbsContext::arm(std::uint32_t cq_handle, CqArm value) {
  page()->cq_arm[handle_slot(cq_handle)].store(value, std::memory_order_seq_cst);
}

Result<Ring> VerbsContext::make_ring(std::uint32_t entries, std::uint32_t element_bytes) {
  // One element always stays empty: it tells full from empty.
  const std::uint32_t count = std::bit_ceil(entries + 1);
  const auto log2_stride =
      static_cast<std::uint32_t>(std::bit_width(std::bit_ceil(element_bytes))) - 1;
  Ring ring;
  ring.bytes = engine::RxeQueues::ring_bytes(log2_stride, count);
  const auto offset = memory_.allocate(ring.bytes);
  if (!offset) return Error{ENOMEM, "the context's ring memory is used up"};
  ring.ref = {ring_region_, *offset, log2_stride, count - 1};
  // Only the head is written, and no table names the ring yet.
  if (!device.worker.queues().format_ring(ring.ref)) return Error{ENOMEM, "the ring does not fit"};
  return ring;
}

void VerbsContext::free_ring(const Ring& ring) {
  if (ring.ref.is_present()) memory_.release(ring.ref.offset, ring.bytes);
}

void VerbsContext::destroy_qp(std::uint32_t handle, QueuePair& qp) {
  device.worker.run([&] {
    device.worker.unbind_qp(identity.id, handle_slot(handle));
    (void)device.worker.engine(device.index).destroy_qp(device.worker.now(), qp.number);
  });
  device.qp_owners.erase(qp.number.value);
  free_ring(qp.send_ring);
  free_ring(qp.recv_ring);
  --pds.find(qp.pd)->users;
  --cqs.find(qp.send_cq)->users;
  --cqs.find(qp.recv_cq)->users;
  if (qp.srq) --srqs.find(*qp.srq)->users;
  qps.remove(handle);
}

VerbsContext::Reported VerbsContext::destroy_cq(std::uint32_t handle, CompletionQueue& cq) {
  Reported reported;
  CompletionChannel* channel = cq.channel ? channels.find(*cq.channel) : nullptr;
  // Withdrawn on the worker, which writes into the pipe: what is put back then has its room.
  reported.completion_events = device.worker.run([&] {
    const std::uint64_t written = device.worker.unbind_cq(identity.id, handle_slot(handle));
    (void)device.worker.engine(device.index).destroy_cq(cq.index);
    const std::uint32_t withdrawn = channel != nullptr ? channel->pipe.withdraw(cq.user_handle) : 0;
    return static_cast<std::uint32_t>(written) - withdrawn;
  });
  device.cq_owners.erase(cq.index.value);
  if (channel != nullptr) {
    --channel->users;
    release_channel_if_unused(*cq.channel);
  }
  reported.async_events = cq.async_events;
  if (cq.async_events != 0) reported.async_events -= withdraw_async(cq.user_handle);
  free_ring(cq.ring);
  cqs.remove(handle);
  return reported;
}

std::uint32_t VerbsContext::destroy_srq(std::uint32_t handle, SharedReceiveQueue& srq) {
  device.worker.run([&] { (void)device.worker.engine(device.index).destroy_srq(srq.index); });
  device.srq_owners.erase(srq.index.value);
  std::uint32_t reported = srq.async_events;
  if (reported != 0) reported -= withdraw_async(srq.user_handle);
  free_ring(srq.ring);
  --pds.find(srq.pd)->users;
  srqs.remove(handle);
  return reported;
}

int VerbsContext::destroy_mr(std::uint32_t handle, MemoryRegion& mr) {
  // On the worker, which also binds windows. When run() returns, a whole turn boundary has passed:
  // no lookup from before is in use any more.
  const auto retired = device.worker.run([&] { return device.regions.retire(mr.keys.index); });
  if (!retired) return retired.error().code;
  device.regions.release(mr.keys.index);
  --pds.find(mr.pd)->users;
  mrs.remove(handle);
  return 0;
}

void VerbsContext::destroy_mw(std::uint32_t handle, const MemoryWindow& mw) {
  device.worker.run([&] { (void)device.regions.retire(mw.index); });
  device.regions.release(mw.index);
  --pds.find(mw.pd)->users;
  --device.mw_count;
  mws.remove(handle);
}

void VerbsContext::destroy_pd(std::uint32_t handle) {
  pds.remove(handle);
  --device.pd_count;
}

void VerbsContext::destroy_ah(std::uint32_t handle, AddressHandle& ah) {
  device.worker.run(
      [&] { (void)device.worker.engine(device.index).destroy_address_handle(ah.number); });
  --pds.find(ah.pd)->users;
  ahs.remove(handle);
  --device.ah_count;
}

}  // namespace rocemu::control
