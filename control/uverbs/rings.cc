#include "control/uverbs/rings.h"

#include <algorithm>
#include <cstring>

#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control::uverbs {

mminfo info_of(const Ring& ring) {
  if (!ring.ref.is_present()) return {};
  return {ring.ref.offset, static_cast<std::uint32_t>(RingAllocator::round_up(ring.bytes)), 0};
}

std::optional<std::uint32_t> move_elements(const VerbsContext& context, const Ring& from,
                                           const Ring& to, std::uint32_t limit) {
  std::byte* const source = context.bytes_of(from).data();
  std::byte* const target = context.bytes_of(to).data();
  const auto consumer = load<std::uint32_t>(source + rxe::kQueueConsumerIndex);
  const auto producer = load<std::uint32_t>(source + rxe::kQueueProducerIndex);
  const std::uint32_t count = (producer - consumer) & from.ref.mask;
  if (count > std::min(limit, VerbsContext::usable_entries(to))) return std::nullopt;
  const std::size_t stride = std::size_t{1} << from.ref.log2_stride;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::memcpy(target + rxe::kQueueData + i * stride,
                source + rxe::kQueueData + ((consumer + i) & from.ref.mask) * stride, stride);
  }
  store(target + rxe::kQueueProducerIndex, count);
  return count;
}

}  // namespace rocemu::control::uverbs
