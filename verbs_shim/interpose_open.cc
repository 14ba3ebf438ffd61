// open and its relatives. An emulated device becomes a context, a counter the daemon's text, any
// other emulated path the file of the run-time directory's tree; everything else goes on as it was.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstdio>

#include "verbs_shim/context.h"
#include "verbs_shim/export.h"
#include "verbs_shim/path_map.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"
#include "verbs_shim/sysfs.h"

namespace rocemu::shim {
namespace {

constinit Next<int(const char*, int, ...)> next_open{"open"};
constinit Next<int(int, const char*, int, ...)> next_openat{"openat"};
constinit Next<FILE*(const char*, const char*)> next_fopen{"fopen"};

// What open() does with a path that is not ordinary.
int open_mapped(const MappedPath& mapped, PathKind kind, int flags, mode_t mode) {
  switch (kind) {
    case PathKind::kDevice:
      if ((flags & O_DIRECTORY) != 0) {
        errno = ENOTDIR;
        return -1;
      }
      return open_context(mapped.device_index, flags);
    case PathKind::kCounter:
      if ((flags & (O_ACCMODE | O_PATH | O_DIRECTORY)) == O_RDONLY) {
        return open_counter(mapped.attribute, flags);
      }
      break;
    case PathKind::kAbsent:
      errno = ENOENT;
      return -1;
    case PathKind::kRedirect:
    case PathKind::kOrdinary:
      break;
  }
  const int fd = next_open(mapped.path, flags & ~O_CREAT, mode);
  struct stat status {};
  if (fd >= 0 && sys::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    (void)set_fd(fd, {FdKind::kSysfsDir, 0, 0});
  }
  return fd;
}

[[gnu::noinline]] bool try_open(int directory_fd, const char* path, int flags, mode_t mode,
                                int& fd) {
  MappedPath mapped;
  const PathKind kind = map_path_at(directory_fd, path, mapped);
  if (kind == PathKind::kOrdinary) return false;
  fd = open_mapped(mapped, kind, flags, mode);
  return true;
}

// A number that the kernel hands out anew cannot be ours: it was closed behind our back.
int forget_stale(int fd) {
  if (fd_kind(fd) != FdKind::kOrdinary) [[unlikely]] {
    if (is_owner()) release_entry(take_fd(fd));
  }
  return fd;
}

int open_path(const char* path, int flags, mode_t mode) {
  int fd = -1;
  if ((is_candidate(path) || is_below_tree(path)) && try_open(AT_FDCWD, path, flags, mode, fd)) {
    return fd;
  }
  return forget_stale(next_open(path, flags, mode));
}

int open_path_at(int directory_fd, const char* path, int flags, mode_t mode) {
  int fd = -1;
  const bool is_relative_candidate =
      directory_fd == AT_FDCWD ? is_below_tree(path) : fd_kind(directory_fd) == FdKind::kSysfsDir;
  if ((is_candidate(path) || is_relative_candidate) &&
      try_open(directory_fd, path, flags, mode, fd)) {
    return fd;
  }
  return forget_stale(next_openat(directory_fd, path, flags, mode));
}

[[gnu::noinline]] bool try_fopen(const char* path, const char* mode, FILE*& file) {
  MappedPath mapped;
  const PathKind kind = map_path_at(AT_FDCWD, path, mapped);
  file = nullptr;
  switch (kind) {
    case PathKind::kOrdinary:
      return false;
    case PathKind::kAbsent:
      errno = ENOENT;
      return true;
    case PathKind::kDevice:
      errno = EINVAL;  // buffered commands make no sense
      return true;
    case PathKind::kRedirect:
      file = next_fopen(mapped.path, mode);
      return true;
    case PathKind::kCounter:
      break;
  }
  const int fd = open_counter(mapped.attribute, O_CLOEXEC);
  if (fd < 0) return true;
  file = fdopen(fd, "r");
  if (file == nullptr) sys::close(fd);
  return true;
}

FILE* fopen_path(const char* path, const char* mode) {
  FILE* file = nullptr;
  if ((is_candidate(path) || is_below_tree(path)) && try_fopen(path, mode, file)) return file;
  return next_fopen(path, mode);
}

bool needs_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace
}  // namespace rocemu::shim

using rocemu::shim::fopen_path;
using rocemu::shim::needs_mode;
using rocemu::shim::open_path;
using rocemu::shim::open_path_at;

#define ROCEMU_TAKE_MODE(flags)       \
  mode_t mode = 0;                    \
  if (needs_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

ROCEMU_INTERPOSE(int, open, const char* path, int flags, ...) {
  ROCEMU_TAKE_MODE(flags)
  return open_path(path, flags, mode);
}
ROCEMU_INTERPOSE(int, open64, const char* path, int flags, ...) {
  ROCEMU_TAKE_MODE(flags)
  return open_path(path, flags | O_LARGEFILE, mode);
}
ROCEMU_INTERPOSE(int, openat, int directory_fd, const char* path, int flags, ...) {
  ROCEMU_TAKE_MODE(flags)
  return open_path_at(directory_fd, path, flags, mode);
}
ROCEMU_INTERPOSE(int, openat64, int directory_fd, const char* path, int flags, ...) {
  ROCEMU_TAKE_MODE(flags)
  return open_path_at(directory_fd, path, flags | O_LARGEFILE, mode);
}
// The fortified forms, for calls without a mode.
ROCEMU_INTERPOSE(int, __open_2, const char* path, int flags) { return open_path(path, flags, 0); }
ROCEMU_INTERPOSE(int, __open64_2, const char* path, int flags) {
  return open_path(path, flags | O_LARGEFILE, 0);
}
ROCEMU_INTERPOSE(int, __openat_2, int directory_fd, const char* path, int flags) {
  return open_path_at(directory_fd, path, flags, 0);
}
ROCEMU_INTERPOSE(int, __openat64_2, int directory_fd, const char* path, int flags) {
  return open_path_at(directory_fd, path, flags | O_LARGEFILE, 0);
}
ROCEMU_INTERPOSE(int, creat, const char* path, mode_t mode) {
  return open_path(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
ROCEMU_INTERPOSE(int, creat64, const char* path, mode_t mode) {
  return open_path(path, O_CREAT | O_WRONLY | O_TRUNC | O_LARGEFILE, mode);
}
ROCEMU_INTERPOSE(FILE*, fopen, const char* path, const char* mode) {
  return fopen_path(path, mode);
}
ROCEMU_INTERPOSE(FILE*, fopen64, const char* path, const char* mode) {
  return fopen_path(path, mode);
}
