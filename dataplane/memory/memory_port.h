// The memory port: how payload gets from and to the applications' memory. The engine plans a turn
// as a list of moves, the port moves them in as few system calls as it can (one batch a client),
// the engine commits. In simulation the port is plain memory; in the daemon it is process_vm_* or
// /proc/PID/mem on a handle that is bound to one program image, or nothing at all for direct
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rocemu/base/ids.h"

namespace rocemu::memory {

enum class Direction : std::uint8_t { kFromClient, kToClient };
enum class MoveStatus : std::uint8_t { kPending, kDone, kFault };

/// One contiguous piece. `direct`: the client's bytes as mapped in the daemon, or null: then they
/// are at `client_va` in `space`. `local` is the daemon's side (a frame buffer). `length` may be 0.
struct Move {
  SpaceId space;
  Direction direction = Direction::kFromClient;
  MoveStatus status = MoveStatus::kPending;
  std::uint32_t length = 0;
  std::uint64_t client_va = 0;
  std::byte* direct = nullptr;
  std::byte* local = nullptr;
};

enum class AtomicKind : std::uint8_t { kCompareSwap, kFetchAdd, kWrite };

/// An 8-byte operation on a naturally aligned client word, host byte order.
struct AtomicMove {
  SpaceId space;
  AtomicKind kind = AtomicKind::kFetchAdd;
  MoveStatus status = MoveStatus::kPending;
  std::uint64_t client_va = 0;
  std::byte* direct = nullptr;
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t original = 0;  ///< Out: the word before.
};

class MemoryPort {
 public:
  virtual ~MemoryPort() = default;

  /// Performs every move, in order where two touch the same client bytes; sets each status to kDone
  /// or kFault. A fault in one move does not disturb the others; a faulted kToClient move may have
  /// stored a prefix. Stores to client memory are forward, the last bytes last. Never fails as a
  /// whole.
  virtual void move(std::span<Move> moves) = 0;

  /// Performs one atomic after all earlier moves are visible. Atomic towards all other calls of any
  /// port of the daemon; towards the client's own CPU atomics only when `direct` is set
  /// (IBV_ATOMIC_HCA otherwise).
  virtual void atomic(AtomicMove& op) = 0;

  /// Makes what was stored in the space outlast a power failure. False when its memory cannot.
  virtual bool persist(SpaceId space) = 0;
};

}  // namespace rocemu::memory
