// Access to client memory that is mapped in the daemon. Applications poll on the last bytes of what
// a peer writes: stores go forward and the last eight bytes are released last. Atomics are the
// CPU's own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/memory/memory_port.h"

namespace rocemu::memory {

/// Copies `n` bytes to memory that somebody may be polling.
inline void copy_to_polled(std::byte* to, const std::byte* from, std::size_t n) {
  if (n < 8) {
    for (std::size_t i = 0; i < n; ++i) {
      // release: pairs with the application's load of a later byte.
      std::atomic_ref<std::byte>(to[i]).store(from[i], std::memory_order_release);
    }
    return;
  }
  std::memcpy(to, from, n - 8);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to + n - 8, from + n - 8, 8);
}

/// Performs `op` on its naturally aligned direct word.
inline void run_direct_atomic(AtomicMove& op) {
  std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(op.direct));
  switch (op.kind) {
    case AtomicKind::kCompareSwap:
      op.original = op.compare;
      word.compare_exchange_strong(op.original, op.swap_or_add, std::memory_order_acq_rel);
      break;
    case AtomicKind::kFetchAdd:
      op.original = word.fetch_add(op.swap_or_add, std::memory_order_acq_rel);
      break;
    case AtomicKind::kWrite:
      op.original = word.exchange(op.swap_or_add, std::memory_order_acq_rel);
      break;
  }
  op.status = MoveStatus::kDone;
}

/// What an atomic of `kind` leaves in a word that held `original`; for ports that read, modify and
/// write.
inline std::uint64_t atomic_result(const AtomicMove& op, std::uint64_t original) {
  switch (op.kind) {
    case AtomicKind::kCompareSwap:
      return original == op.compare ? op.swap_or_add : original;
    case AtomicKind::kFetchAdd:
      return original + op.swap_or_add;
    case AtomicKind::kWrite:
      return op.swap_or_add;
  }
  return original;
}

}  // namespace rocemu::memory
