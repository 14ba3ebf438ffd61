// Which of the process's file descriptors are ours: one byte a descriptor, read without a lock by
// every interposer, so that calls on ordinary descriptors cost one load. Marks are made after a
// descriptor exists and removed before it is closed, never the other way round: the kernel reuses a
// number at once.
#pragma once

#include <atomic>
#include <cstdint>

namespace rocemu::shim {

enum class FdKind : std::uint8_t {
  kOrdinary = 0,  ///< Not ours.
  kContext,       ///< An open uverbs device; the application's.
  kChannel,       ///< A completion channel; the application's.
  kSysfsDir,      ///< A directory opened below the emulated sysfs; the application's.
  kInternal,      ///< The shim's own: a socket or a wake-up eventfd, hidden from the application.
};

/// Descriptors at or above this number cannot be ours.
inline constexpr int kMaxTrackedFds = 1 << 20;

struct FdEntry {
  FdKind kind = FdKind::kOrdinary;
  std::uint32_t context = 0;  ///< kContext, kChannel: index of the context.
  std::uint32_t handle = 0;   ///< kChannel: the daemon's handle.
};

namespace detail {
extern std::uint8_t fd_kinds[kMaxTrackedFds];
}

inline FdKind fd_kind(int fd) {
  if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMaxTrackedFds)) return FdKind::kOrdinary;
  const std::atomic_ref<std::uint8_t> kind(detail::fd_kinds[fd]);
  return static_cast<FdKind>(kind.load(std::memory_order_acquire));  // pairs with set_fd's release
}

FdEntry fd_entry(int fd);
/// False when `fd` is too high to be tracked.
bool set_fd(int fd, const FdEntry& entry);
/// Removes the mark and returns what it was; of two threads that race, one gets it.
FdEntry take_fd(int fd);
/// One more than the highest descriptor ever marked.
int fd_limit();

/// Moves a descriptor of the shim's own out of the way of the application: to a high number, close
/// on exec, marked kInternal. Closes `fd`. Returns the new number, or -1 with errno.
int hide_fd(int fd);
/// Closes a descriptor that hide_fd returned.
void close_hidden_fd(int fd);

}  // namespace rocemu::shim
