// System calls that no interposer sees, neither ours nor another preloaded library's, and that are
// no cancellation points: what the shim does for itself goes through here. Same results and errno
// as the calls they are named after.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <initializer_list>

#include <cstddef>

namespace rocemu::shim::sys {

inline int open(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, 0));
}
inline int close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
inline ssize_t write(int fd, const void* bytes, std::size_t count) {
  return ::syscall(SYS_write, fd, bytes, count);
}
inline int fcntl(int fd, int command, long argument) {
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}
inline int fstat(int fd, struct stat* out) {
  return static_cast<int>(::syscall(SYS_fstat, fd, out));
}
inline int stat(const char* path, struct stat* out) {
  return static_cast<int>(::syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
inline int socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}
inline int connect(int fd, const void* address, socklen_t length) {
  return static_cast<int>(::syscall(SYS_connect, fd, address, length));
}
inline ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
inline ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return ::syscall(SYS_recvmsg, fd, message, flags);
}
inline ssize_t readlink(const char* path, char* out, std::size_t size) {
  return ::syscall(SYS_readlinkat, AT_FDCWD, path, out, size);
}
inline int memfd_create(const char* name, unsigned flags) {
  return static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}
inline int close_range(unsigned first, unsigned last, unsigned flags) {
#ifdef SYS_close_range
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
#else
  return static_cast<int>(::syscall(436, first, last, flags));
#endif
}
inline pid_t getpid() { return static_cast<pid_t>(::syscall(SYS_getpid)); }

/// Blocks the signals that handlers may take while a lock is held or an RPC is under way: a handler
/// may call verbs, and a second request on the same connection would wait for the first for ever.
/// Faults of the program's own stay deliverable. `saved`: the mask to restore.
inline void block_signals(sigset_t& saved) {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    sigdelset(&blocked, fault);
  }
  // libc's call, not the raw one: it leaves the signals alone by which setuid() and
  // pthread_cancel() reach other threads.
  pthread_sigmask(SIG_SETMASK, &blocked, &saved);
}

/// block_signals for a scope.
class SignalGuard {
 public:
  SignalGuard() { block_signals(saved_); }
  ~SignalGuard() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace rocemu::shim::sys
