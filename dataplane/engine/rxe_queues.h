// QueuePort for the ring format of the librxe provider (include/rocemu/abi/rxe_ring.h), over
// regions that the driver maps: client memfds in the daemon, plain heap blocks in simulation and
// tests. Holds no state but the region table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/transport/work_request.h"
#include "rocemu/base/ids.h"

namespace rocemu::engine {

class RxeQueues final : public transport::QueuePort {
 public:
  /// `max_regions`: regions at most (two a context: rings and doorbells).
  explicit RxeQueues(std::uint32_t max_regions);

  /// Registers mapped memory; `base` must stay mapped until remove_region. Returns none() when
  /// full.
  RegionId add_region(std::span<std::byte> memory);
  void remove_region(RegionId region);

  /// Lays an empty ring out at `ring` (both indices 0, geometry stored for the client). EINVAL when
  /// it does not fit its region.
  bool format_ring(const transport::RingRef& ring);
  static std::uint64_t ring_bytes(std::uint32_t log2_stride, std::uint32_t element_count);

  std::uint32_t available(const transport::RingRef& ring, std::uint32_t next) override;
  transport::ReadResult read_send(const transport::RingRef& ring, std::uint32_t index,
                                  const transport::QueueLimits& limits,
                                  transport::SendWorkRequest& out) override;
  transport::ReadResult read_recv(const transport::RingRef& ring, std::uint32_t index,
                                  const transport::QueueLimits& limits,
                                  transport::RecvWorkRequest& out) override;
  void retire(const transport::RingRef& ring, std::uint32_t index) override;
  bool has_room(const transport::RingRef& cq, std::uint32_t producer) override;
  bool has_unpolled(const transport::RingRef& cq, std::uint32_t producer) override;
  void write_completion(const transport::RingRef& cq, std::uint32_t producer,
                        const transport::Completion& completion) override;
  std::uint32_t drop_completions(const transport::RingRef& cq, std::uint32_t producer, QpNum qp,
                                 std::uint32_t& announced) override;
  bool take_arm(const transport::ArmRef& arm, bool is_solicited) override;

 private:
  std::byte* head_of(const transport::RingRef& ring) const;
  std::byte* element_of(const transport::RingRef& ring, std::uint32_t index) const;

  std::vector<std::span<std::byte>> regions_;
  std::vector<std::uint32_t> free_;
};

}  // namespace rocemu::engine
