// The DPDK environment: started once, and only when some device needs a port. Huge pages when there
// are some, else ordinary memory.
#pragma once

#include <string>
#include <vector>

#include "rocemu/base/result.h"

namespace rocemu::dpdk {

struct EalStart {
  std::string note;  ///< For the operator: what was fallen back to; may be empty.
};

/// `arguments`: EAL options (--vdev, -a, ...). The calling thread keeps its CPU affinity. EINVAL or
/// ENODEV with EAL's complaint.
Result<EalStart> start_eal(const std::vector<std::string>& arguments);
bool is_eal_running();
/// Makes the calling thread known to DPDK (mempool caches, per-thread state). No effect without
/// EAL.
void register_thread();

}  // namespace rocemu::dpdk
