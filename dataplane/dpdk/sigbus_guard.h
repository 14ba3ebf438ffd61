// Client memory that the daemon maps can fail under it: a tmpfs that runs full, a page that went
// bad. A fault inside a guarded range is answered by a page of zeros and remembered, so that the
// client is ended in place of the daemon; any other SIGBUS takes its course. add/remove: any one
// thread at a time. The handler runs on the thread that faulted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rocemu::dpdk {

/// Guards `range` under `owner`. Returns false when the table is full.
bool guard_range(std::span<std::byte> range, std::uint32_t owner);
void unguard_ranges(std::uint32_t owner);

/// How many faults were answered so far; when it moved, some owner is_faulted().
std::uint64_t fault_count();
bool is_faulted(std::uint32_t owner);

}  // namespace rocemu::dpdk
