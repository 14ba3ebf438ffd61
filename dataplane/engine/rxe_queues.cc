// Everything read here may change while it is read: a field is loaded once, the copy is checked and
// used. Indices in the ring are stored wrapped, as librxe does; geometry is the daemon's own.
#include "dataplane/engine/rxe_queues.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "rocemu/abi/doorbell.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "rocemu/base/check.h"

namespace rocemu::engine {
namespace {

using transport::ReadResult;
using transport::RecvWorkRequest;
using transport::RingRef;
using transport::SendWorkRequest;

std::atomic_ref<std::uint32_t> word_at(std::byte* p) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(p));
}

bool is_known(std::uint32_t opcode) { return opcode <= 15; }

// SGEs of a WQE's dma area; returns the sum of their lengths.
std::uint64_t copy_sges(const std::byte* data, std::uint32_t count,
                        std::array<transport::Sge, transport::kMaxSge>& out) {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* p = data + i * rxe::kSgeBytes;
    out[i] = {load<std::uint64_t>(p + rxe::kSgeAddr), load<std::uint32_t>(p + rxe::kSgeLength),
              load<std::uint32_t>(p + rxe::kSgeLkey)};
    total += out[i].length;
  }
  return total;
}

// Bytes of an element behind its fixed part.
std::size_t room_behind(const RingRef& ring, std::size_t fixed_bytes) {
  const std::size_t stride = std::size_t{1} << ring.log2_stride;
  return stride > fixed_bytes ? stride - fixed_bytes : 0;
}

void copy_send_operands(const std::byte* wqe, SendWorkRequest& out) {
  if (out.opcode == transport::WrOpcode::kBindMw) {
    out.bind = {.window_rkey = load<std::uint32_t>(wqe + rxe::kSendMwMwRkey),
                .new_rkey = load<std::uint32_t>(wqe + rxe::kSendMwRkey),
                .region_lkey = load<std::uint32_t>(wqe + rxe::kSendMwMrLkey),
                .va = load<std::uint64_t>(wqe + rxe::kSendMwAddr),
                .length = load<std::uint64_t>(wqe + rxe::kSendMwLength),
                .access = load<std::uint32_t>(wqe + rxe::kSendMwAccess)};
    return;
  }
  out.remote_va = load<std::uint64_t>(wqe + rxe::kSendRemoteAddr);
  if (out.opcode == transport::WrOpcode::kAtomicCmpAndSwp ||
      out.opcode == transport::WrOpcode::kAtomicFetchAndAdd) {
    out.compare_add = load<std::uint64_t>(wqe + rxe::kSendAtomicCompareAdd);
    out.swap = load<std::uint64_t>(wqe + rxe::kSendAtomicSwap);
    out.rkey = load<std::uint32_t>(wqe + rxe::kSendAtomicRkey);
  } else if (out.opcode == transport::WrOpcode::kFlush) {
    out.rkey = load<std::uint32_t>(wqe + rxe::kSendFlushRkey);
    out.flush = {.length = load<std::uint32_t>(wqe + rxe::kSendFlushLength),
                 .type = load<std::uint8_t>(wqe + rxe::kSendFlushType),
                 .level = load<std::uint8_t>(wqe + rxe::kSendFlushLevel)};
  } else {
    out.rkey = load<std::uint32_t>(wqe + rxe::kSendRdmaRkey);
  }
  out.remote_qpn = load<std::uint32_t>(wqe + rxe::kSendUdRemoteQpn);
  out.remote_qkey = load<std::uint32_t>(wqe + rxe::kSendUdRemoteQkey);
  out.ah_number = load<std::uint32_t>(wqe + rxe::kSendUdAhNum);
}

}  // namespace

RxeQueues::RxeQueues(std::uint32_t max_regions) : regions_(max_regions) {
  free_.reserve(max_regions);
  for (std::uint32_t i = max_regions; i != 0; --i) free_.push_back(i - 1);
}

RegionId RxeQueues::add_region(std::span<std::byte> memory) {
  if (free_.empty()) return RegionId::none();
  const std::uint32_t index = free_.back();
  free_.pop_back();
  regions_[index] = memory;
  return RegionId{index};
}

void RxeQueues::remove_region(RegionId region) {
  ROCEMU_CHECK(region.value < regions_.size());
  regions_[region.value] = {};
  free_.push_back(region.value);
}

std::byte* RxeQueues::head_of(const RingRef& ring) const {
  return regions_[ring.region.value].data() + ring.offset;
}

std::byte* RxeQueues::element_of(const RingRef& ring, std::uint32_t index) const {
  return head_of(ring) + rxe::kQueueData + (std::size_t{index & ring.mask} << ring.log2_stride);
}

std::uint64_t RxeQueues::ring_bytes(std::uint32_t log2_stride, std::uint32_t element_count) {
  return rxe::kQueueData + (std::uint64_t{element_count} << log2_stride);
}

bool RxeQueues::format_ring(const RingRef& ring) {
  if (ring.region.value >= regions_.size()) return false;
  const std::uint64_t bytes = ring_bytes(ring.log2_stride, ring.mask + 1);
  const std::uint64_t room = regions_[ring.region.value].size();
  if (bytes > room || ring.offset > room - bytes) return false;
  std::byte* head = head_of(ring);
  std::memset(head, 0, rxe::kQueueData);
  store(head + rxe::kQueueLog2ElemSize, ring.log2_stride);
  store(head + rxe::kQueueIndexMask, ring.mask);
  return true;
}

std::uint32_t RxeQueues::available(const RingRef& ring, std::uint32_t next) {
  // acquire: pairs with the provider's release after it wrote the elements. Any value is a legal
  // number of elements once masked.
  const std::uint32_t producer =
      word_at(head_of(ring) + rxe::kQueueProducerIndex).load(std::memory_order_acquire);
  return (producer - next) & ring.mask;
}

ReadResult RxeQueues::read_send(const RingRef& ring, std::uint32_t index,
                                const transport::QueueLimits& limits, SendWorkRequest& out) {
  const std::byte* wqe = element_of(ring, index);
  const std::byte* dma = wqe + rxe::kSendDma;
  const std::byte* data = dma + rxe::kDmaData;
  out.wr_id = load<std::uint64_t>(wqe + rxe::kSendWrId);
  const auto opcode = load<std::uint32_t>(wqe + rxe::kSendOpcode);
  out.opcode =
      is_known(opcode) ? static_cast<transport::WrOpcode>(opcode) : transport::WrOpcode::kSend;
  out.flags = load<std::uint32_t>(wqe + rxe::kSendFlags);
  out.immediate = load_be<std::uint32_t>(wqe + rxe::kSendEx);
  out.invalidate_rkey = load<std::uint32_t>(wqe + rxe::kSendEx);
  copy_send_operands(wqe, out);
  const auto claimed = load<std::uint32_t>(dma + rxe::kDmaLength);
  const auto sge_count = load<std::uint32_t>(dma + rxe::kDmaNumSge);
  out.length = claimed;
  out.sge_count = 0;
  if (!is_known(opcode)) return ReadResult::kMalformed;
  // The operand of wr_atomic_write stands where inline data does, without the flag.
  if (out.opcode == transport::WrOpcode::kAtomicWrite && sge_count == 0) {
    out.flags |= transport::kSendInline;
  }
  if ((out.flags & transport::kSendInline) != 0) {
    const std::size_t room = room_behind(ring, rxe::kSendWqeBytes);
    if (claimed > std::min<std::size_t>(limits.max_inline_bytes, room)) {
      return ReadResult::kMalformed;
    }
    std::memcpy(out.inline_data.data(), data, claimed);
    return ReadResult::kOk;
  }
  const std::size_t sge_room = room_behind(ring, rxe::kSendWqeBytes) / rxe::kSgeBytes;
  if (sge_count > std::min<std::size_t>(limits.max_sge, sge_room)) return ReadResult::kMalformed;
  const std::uint64_t total = copy_sges(data, sge_count, out.sges);
  out.sge_count = sge_count;
  return total == claimed ? ReadResult::kOk : ReadResult::kMalformed;
}

ReadResult RxeQueues::read_recv(const RingRef& ring, std::uint32_t index,
                                const transport::QueueLimits& limits, RecvWorkRequest& out) {
  const std::byte* wqe = element_of(ring, index);
  const std::byte* dma = wqe + rxe::kRecvDma;
  out.wr_id = load<std::uint64_t>(wqe + rxe::kRecvWrId);
  out.length = 0;
  out.sge_count = 0;
  const auto sge_count = load<std::uint32_t>(dma + rxe::kDmaNumSge);
  const std::size_t sge_room = room_behind(ring, rxe::kRecvWqeBytes) / rxe::kSgeBytes;
  if (sge_count > std::min<std::size_t>(limits.max_recv_sge, sge_room)) {
    return ReadResult::kMalformed;
  }
  out.length = copy_sges(dma + rxe::kDmaData, sge_count, out.sges);
  out.sge_count = sge_count;
  return ReadResult::kOk;
}

void RxeQueues::retire(const RingRef& ring, std::uint32_t index) {
  // release: pairs with the provider's acquire before it overwrites an element.
  word_at(head_of(ring) + rxe::kQueueConsumerIndex)
      .store(index & ring.mask, std::memory_order_release);
}

bool RxeQueues::has_room(const RingRef& cq, std::uint32_t producer) {
  // acquire: pairs with the provider's release after it read the element.
  const std::uint32_t consumer =
      word_at(head_of(cq) + rxe::kQueueConsumerIndex).load(std::memory_order_acquire);
  return ((producer + 1 - consumer) & cq.mask) != 0;
}

bool RxeQueues::has_unpolled(const RingRef& cq, std::uint32_t producer) {
  const std::uint32_t consumer =
      word_at(head_of(cq) + rxe::kQueueConsumerIndex).load(std::memory_order_acquire);
  return ((producer - consumer) & cq.mask) != 0;
}

void RxeQueues::write_completion(const RingRef& cq, std::uint32_t producer,
                                 const transport::Completion& c) {
  std::byte* wc = element_of(cq, producer);
  store(wc + rxe::kWcWrId, c.wr_id);
  store(wc + rxe::kWcStatus, static_cast<std::uint32_t>(c.status));
  store(wc + rxe::kWcOpcode, static_cast<std::uint32_t>(c.opcode));
  store(wc + rxe::kWcVendorErr, c.vendor_error);
  store(wc + rxe::kWcByteLen, c.byte_length);
  if ((c.flags & transport::kWcWithImm) != 0) {
    store_be<std::uint32_t>(wc + rxe::kWcEx, c.immediate_or_rkey);
  } else {
    store(wc + rxe::kWcEx, c.immediate_or_rkey);
  }
  store(wc + rxe::kWcQpNum, c.qp.value);
  store(wc + rxe::kWcSrcQp, c.source_qp.value);
  store(wc + rxe::kWcFlags, c.flags);
  store(wc + rxe::kWcPkeyIndex, c.pkey_index);
  store(wc + rxe::kWcSlid, std::uint16_t{0});
  store(wc + rxe::kWcSl, c.service_level);
  store(wc + rxe::kWcDlidPathBits, std::uint8_t{0});
  store(wc + rxe::kWcPortNum, std::uint8_t{1});
  // release: pairs with the provider's acquire in poll_cq.
  word_at(head_of(cq) + rxe::kQueueProducerIndex)
      .store((producer + 1) & cq.mask, std::memory_order_release);
}

std::uint32_t RxeQueues::drop_completions(const RingRef& cq, std::uint32_t producer, QpNum qp,
                                          std::uint32_t& announced) {
  const std::uint32_t consumer =
      word_at(head_of(cq) + rxe::kQueueConsumerIndex).load(std::memory_order_acquire);
  const std::uint32_t count = (producer - consumer) & cq.mask;
  // The newest ones, which no event announced; polled ones among them are not in the ring any more.
  const std::uint32_t unannounced = std::min(producer - announced, count);
  std::uint32_t kept = producer - count;
  announced = kept;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* wc = element_of(cq, producer - count + i);
    if (load<std::uint32_t>(wc + rxe::kWcQpNum) == qp.value) continue;
    std::byte* place = element_of(cq, kept++);
    if (place != wc) std::memcpy(place, wc, rxe::kWcBytes);
    if (count - i > unannounced) announced = kept;
  }
  word_at(head_of(cq) + rxe::kQueueProducerIndex).store(kept & cq.mask, std::memory_order_release);
  return kept;
}

bool RxeQueues::take_arm(const transport::ArmRef& arm, bool is_solicited) {
  auto word = word_at(regions_[arm.region.value].data() + arm.offset);
  // The producer index is published: order it before the look at the arm word (doorbell.h).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::uint32_t armed = word.load(std::memory_order_relaxed);
  while (armed == kArmedAny || (armed == kArmedSolicited && is_solicited)) {
    if (word.compare_exchange_weak(armed, kDisarmed, std::memory_order_acq_rel)) return true;
  }
  return false;
}

}  // namespace rocemu::engine
