// The map of descriptors. 9 MiB of address space, of which only the pages of descriptors in use are
// ever touched.
#include "verbs_shim/fd_table.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "verbs_shim/sys.h"

namespace rocemu::shim {

constinit std::uint8_t detail::fd_kinds[kMaxTrackedFds] = {};

namespace {

constinit std::uint64_t fd_words[kMaxTrackedFds] = {};  // context << 32 | handle
constinit std::atomic<int> highest_fd{-1};

std::atomic_ref<std::uint8_t> kind_of(int fd) {
  return std::atomic_ref<std::uint8_t>(detail::fd_kinds[fd]);
}

std::atomic_ref<std::uint64_t> word_of(int fd) {
  return std::atomic_ref<std::uint64_t>(fd_words[fd]);
}

bool is_tracked(int fd) {
  return static_cast<unsigned>(fd) < static_cast<unsigned>(kMaxTrackedFds);
}

FdEntry entry_of(int fd, std::uint8_t kind) {
  const std::uint64_t word = word_of(fd).load(std::memory_order_relaxed);
  return {static_cast<FdKind>(kind), static_cast<std::uint32_t>(word >> 32),
          static_cast<std::uint32_t>(word)};
}

// Where hidden descriptors start: high enough to be out of the way of programs that expect small
// numbers, low enough to keep the kernel's table of this process small.
int first_hidden_fd() {
  rlimit limit{};
  constexpr int kUsual = 8192;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= 2 * kUsual) return kUsual;
  return static_cast<int>(limit.rlim_cur - limit.rlim_cur / 4);
}

}  // namespace

FdEntry fd_entry(int fd) {
  if (!is_tracked(fd)) return {};
  return entry_of(fd, kind_of(fd).load(std::memory_order_acquire));
}

bool set_fd(int fd, const FdEntry& entry) {
  if (!is_tracked(fd)) return false;
  word_of(fd).store(std::uint64_t{entry.context} << 32 | entry.handle, std::memory_order_relaxed);
  int highest = highest_fd.load(std::memory_order_relaxed);
  while (highest < fd &&
         !highest_fd.compare_exchange_weak(highest, fd, std::memory_order_relaxed)) {
  }
  kind_of(fd).store(static_cast<std::uint8_t>(entry.kind),
                    std::memory_order_release);  // pairs with fd_kind's acquire
  return true;
}

FdEntry take_fd(int fd) {
  if (!is_tracked(fd)) return {};
  const FdEntry entry = fd_entry(fd);
  std::uint8_t expected = static_cast<std::uint8_t>(entry.kind);
  if (!kind_of(fd).compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) {
    return {};
  }
  return entry;
}

int fd_limit() { return highest_fd.load(std::memory_order_relaxed) + 1; }

int hide_fd(int fd) {
  int hidden = -1;
  for (int start = first_hidden_fd(); hidden < 0; start /= 2) {
    hidden = sys::fcntl(fd, F_DUPFD_CLOEXEC, start);
    if (hidden < 0 && start <= 3) break;
  }
  const int error = errno;
  sys::close(fd);
  errno = error;
  if (hidden < 0) return -1;
  if (set_fd(hidden, {FdKind::kInternal, 0, 0})) return hidden;
  sys::close(hidden);
  errno = EMFILE;
  return -1;
}

void close_hidden_fd(int fd) {
  if (fd < 0) return;
  (void)take_fd(fd);
  sys::close(fd);
}

}  // namespace rocemu::shim
