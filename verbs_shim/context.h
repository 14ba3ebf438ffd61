// Open verbs contexts: one for each open() of an emulated device, shared by the descriptors that
// dup() makes of it, ended when the last of these closes. Slots are never freed and a slot's
// doorbell addresses stay mapped, so that a thread that rings while another closes hits memory
// nobody reads instead of a hole.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "rocemu/abi/doorbell.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/rpc.h"

namespace rocemu::shim {

inline constexpr std::uint32_t kMaxContexts = 1024;  ///< A process; more: EMFILE.
inline constexpr std::uint32_t kMaxContextShards = (abi::kMaxMessageFds - 1) / 2;

enum class ContextState : std::uint32_t {
  kFree = 0,   ///< May be taken by an open().
  kOpening,    ///< Exists because the daemon is asked without the table's lock.
  kLive,       ///< Works, as far as the daemon does.
  kInherited,  ///< Exists because a forked child still holds descriptors; only closing works.
};

struct Context {
  std::atomic<ContextState> state;
  std::uint32_t fd_count;  ///< Descriptors that stand for it; table lock.

  // Set by open() before kLive is published.
  std::uint32_t device_index;
  dev_t device;  ///< Identity of the context memfd: tells a descriptor that was closed behind our
  ino_t inode;   ///< back (raw system call) from ours.
  std::uint32_t shard_count;
  std::byte* doorbells;  ///< One page set a shard, `doorbell_stride` bytes apart.
  std::size_t doorbell_stride;
  std::uint32_t doorbell_capacity;  ///< Page sets for which there is address space.
  std::atomic<int> wake_fds[kMaxContextShards];

  // One request at a time: lock.
  pthread_mutex_t lock;
  Connection connection;
  std::byte* buffers;  ///< Request, then reply; kMaxMessageBytes each.

  DoorbellPage& doorbell(std::uint32_t shard) {
    return *reinterpret_cast<DoorbellPage*>(doorbells + shard * doorbell_stride);
  }
};

Context& context_at(std::uint32_t index);
/// Contexts that work: those that an execve would end.
std::uint32_t live_context_count();

/// open() of uverbs<device_index>: a new descriptor, or -1 with errno.
int open_context(std::uint32_t device_index, int flags);

/// After dup(): `to` now is what `from` is, and no longer what it was. Either may be ordinary.
void note_duplicate(int from, int to);
/// After a descriptor with this (taken) entry was closed.
void release_entry(const FdEntry& entry);
/// The application is about to put something else at `fd`, which is one of ours: moves ours away.
/// False when there is no room.
bool vacate_hidden_fd(int fd);

// Around fork().
void lock_contexts_for_fork();
void unlock_contexts_after_fork();
/// In a child: lets go of the parent's connections and marks its contexts inherited.
void drop_inherited_contexts();

}  // namespace rocemu::shim
