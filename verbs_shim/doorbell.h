// The client's half of the doorbell page (include/rocemu/abi/doorbell.h has the protocol). Any
// thread may ring at any time; nothing here blocks, and the kernel is entered only to wake a worker
// that is asleep.
#pragma once

#include <cstdint>

#include "rocemu/abi/doorbell.h"

namespace rocemu::shim {

/// Says that send work requests wait on QP `slot` (below kMaxQpSlots). `wake_fd`: the eventfd of
/// the page's worker.
void ring_qp(DoorbellPage& page, int wake_fd, std::uint32_t slot);

/// Arms CQ `slot` (below kMaxCqSlots) for one completion event and has the worker look at it, so
/// that completions already there count. `arm` is kArmedSolicited or kArmedAny; a weaker arm never
/// replaces a stronger one.
void arm_cq(DoorbellPage& page, int wake_fd, std::uint32_t slot, CqArm arm);

}  // namespace rocemu::shim
