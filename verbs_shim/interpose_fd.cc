// Calls on descriptors. Ordinary ones cost one byte load each. The application's view of ours: a
// device is written to with commands, copied and closed like any file; the shim's own descriptors
// do not exist (closing "everything" leaves them alone, asking answers EBADF). In a vfork child
// every call is native: the descriptors there are copies, the shim's memory is the parent's.
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "verbs_shim/commands.h"
#include "verbs_shim/context.h"
#include "verbs_shim/export.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

constinit Next<ssize_t(int, const void*, size_t)> next_write{"write"};
constinit Next<ssize_t(int, const iovec*, int)> next_writev{"writev"};
constinit Next<int(int)> next_close{"close"};
constinit Next<int(int)> next_dup{"dup"};
constinit Next<int(int, int)> next_dup2{"dup2"};
constinit Next<int(int, int, int)> next_dup3{"dup3"};
constinit Next<int(int, int, ...)> next_fcntl{"fcntl"};
constinit Next<int(int, int, int)> next_socket{"socket"};

int bad_fd() {
  errno = EBADF;
  return -1;
}

bool is_hidden(int fd) { return fd_kind(fd) == FdKind::kInternal && is_owner(); }

[[gnu::noinline]] int close_marked(int fd) {
  if (!is_owner()) return next_close(fd);
  if (fd_kind(fd) == FdKind::kInternal) return bad_fd();
  const FdEntry entry = take_fd(fd);  // before the number can be handed out again
  const int result = next_close(fd);
  const int saved = errno;
  release_entry(entry);
  errno = saved;
  return result;
}

// The kernel takes a vector of commands one by one and stops at the first that fails.
ssize_t write_commands(int fd, const iovec* pieces, int count) {
  ssize_t total = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t written = write_command(fd, pieces[i].iov_base, pieces[i].iov_len);
    if (written < 0) return total > 0 ? total : written;
    total += written;
  }
  return total;
}

// Kernels before 5.9 have no close_range.
void close_natively(unsigned first, unsigned last) {
  if (first > last || sys::close_range(first, last, 0) == 0) return;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto end = std::min<std::uint64_t>(std::uint64_t{last} + 1, limit.rlim_cur);
  for (std::uint64_t fd = first; fd < end; ++fd) sys::close(static_cast<int>(fd));
}

// Closes all in [first, last] but the hidden ones. The application's own are first taken out of the
// table, then closed, then let go of: the order that close_marked keeps for one.
void close_all_but_hidden(unsigned first, unsigned last) {
  const auto limit = static_cast<unsigned>(fd_limit());
  unsigned start = first;
  for (unsigned fd = first; fd <= last && fd < limit; ++fd) {
    switch (fd_kind(static_cast<int>(fd))) {
      case FdKind::kOrdinary:
        break;
      case FdKind::kInternal:
        if (fd > start) close_natively(start, fd - 1);
        start = fd + 1;
        break;
      case FdKind::kContext:
      case FdKind::kChannel:
      case FdKind::kSysfsDir:
        (void)close_marked(static_cast<int>(fd));
        break;
    }
  }
  if (start <= last) close_natively(start, last);
}

int do_close_range(unsigned first, unsigned last, int flags) {
  constexpr int kUnshare = 1 << 1;
  constexpr int kCloexec = 1 << 2;
  const bool is_plain = (flags & kCloexec) == 0 && first <= last && is_owner();
  // Marking only, nonsense, or a child whose descriptors are copies: the kernel's business.
  if (!is_plain || (flags & ~kUnshare) != 0) {
    return sys::close_range(first, last, static_cast<unsigned>(flags));
  }
  // An unshared table is this thread's alone; the marks describe the process's, which keeps all.
  if ((flags & kUnshare) != 0) return sys::close_range(first, last, kUnshare);
  close_all_but_hidden(first, last);
  return 0;
}

// Runs a call that makes `to` a copy of `from` and keeps the table right. `duplicate` returns the
// new descriptor or -1.
template <typename Duplicate>
int duplicate_fd(int from, Duplicate duplicate) {
  if (is_hidden(from)) [[unlikely]]
    return bad_fd();
  const int to = duplicate();
  if (to >= 0) {
    const bool is_marked = fd_kind(from) != FdKind::kOrdinary || fd_kind(to) != FdKind::kOrdinary;
    if (is_marked) [[unlikely]]
      note_duplicate(from, to);
  }
  return to;
}

// The same for calls that choose the new number, which may be one of ours.
template <typename Duplicate>
int duplicate_onto(int from, int to, Duplicate duplicate) {
  if (from != to && is_hidden(to) && !vacate_hidden_fd(to)) {
    errno = EMFILE;
    return -1;
  }
  return duplicate_fd(from, duplicate);
}

int do_fcntl(int fd, int command, void* argument) {
  if (fd_kind(fd) == FdKind::kOrdinary && command != F_DUPFD && command != F_DUPFD_CLOEXEC)
      [[likely]] {
    return next_fcntl(fd, command, argument);
  }
  if (is_hidden(fd)) return bad_fd();
  if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) return next_fcntl(fd, command, argument);
  return duplicate_fd(fd, [=] { return next_fcntl(fd, command, argument); });
}

}  // namespace
}  // namespace rocemu::shim

namespace shim = rocemu::shim;

ROCEMU_INTERPOSE(ssize_t, write, int fd, const void* bytes, size_t count) {
  if (shim::fd_kind(fd) == shim::FdKind::kContext) [[unlikely]] {
    return shim::write_command(fd, bytes, count);
  }
  return shim::next_write(fd, bytes, count);
}

ROCEMU_INTERPOSE(ssize_t, writev, int fd, const iovec* pieces, int count) {
  if (shim::fd_kind(fd) == shim::FdKind::kContext) [[unlikely]] {
    return shim::write_commands(fd, pieces, count);
  }
  return shim::next_writev(fd, pieces, count);
}

ROCEMU_INTERPOSE(int, close, int fd) {
  if (shim::fd_kind(fd) != shim::FdKind::kOrdinary) [[unlikely]]
    return shim::close_marked(fd);
  return shim::next_close(fd);
}

ROCEMU_INTERPOSE(int, close_range, unsigned first, unsigned last, int flags) {
  return shim::do_close_range(first, last, flags);
}

ROCEMU_INTERPOSE(void, closefrom, int first) {
  const unsigned start = first > 0 ? static_cast<unsigned>(first) : 0;
  if (shim::is_owner()) {
    shim::close_all_but_hidden(start, ~0u);
  } else {
    shim::close_natively(start, ~0u);
  }
}

ROCEMU_INTERPOSE(int, dup, int fd) {
  return shim::duplicate_fd(fd, [=] { return shim::next_dup(fd); });
}

ROCEMU_INTERPOSE(int, dup2, int from, int to) {
  return shim::duplicate_onto(from, to, [=] { return shim::next_dup2(from, to); });
}

ROCEMU_INTERPOSE(int, dup3, int from, int to, int flags) {
  return shim::duplicate_onto(from, to, [=] { return shim::next_dup3(from, to, flags); });
}

// Every command's argument is an int or a pointer, and both travel as one word.
#define ROCEMU_TAKE_ARGUMENT(last)           \
  va_list arguments;                         \
  va_start(arguments, last);                 \
  void* argument = va_arg(arguments, void*); \
  va_end(arguments);

ROCEMU_INTERPOSE(int, fcntl, int fd, int command, ...) {
  ROCEMU_TAKE_ARGUMENT(command)
  return shim::do_fcntl(fd, command, argument);
}

ROCEMU_INTERPOSE(int, fcntl64, int fd, int command, ...) {
  ROCEMU_TAKE_ARGUMENT(command)
  return shim::do_fcntl(fd, command, argument);
}

// With RDMA netlink libibverbs would list the kernel's devices, and never look at sysfs.
ROCEMU_INTERPOSE(int, socket, int domain, int type, int protocol) {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return shim::next_socket(domain, type, protocol);
}
