// The DPDK environment: started once, and only when some device needs a port. Huge pages when there
// are some, else ordinary memory; no files, no sockets of its own, one thread beside the caller's.
// Control calls it before any worker starts.
#pragma once

#include <string>
#include <vector>

#include "rocemu/base/result.h"

namespace rocemu::dpdk {

struct EalStart {
  /// For the operator, each a sentence: what was fallen back to, what drivers complained about.
  std::vector<std::string> notes;
};

/// `arguments`: EAL options (--vdev, -a, ...), which win over the defaults. The calling thread
/// keeps its CPU affinity. EALREADY; EINVAL, ENODEV, ENOMEM with EAL's complaint.
Result<EalStart> start_eal(const std::vector<std::string>& arguments);
bool is_eal_running();
/// Makes the calling thread known to DPDK (mempool caches, per-thread state). No effect without
/// EAL.
void register_thread();

}  // namespace rocemu::dpdk
