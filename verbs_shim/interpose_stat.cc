// The stat and access families. An emulated device is a character device with Linux's uverbs
// numbers, readable and writable by all; its open descriptor too, though it is a memory file.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>

#include "verbs_shim/context.h"
#include "verbs_shim/export.h"
#include "verbs_shim/path_map.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

// Where off_t has 64 bits, the two families differ in name only.
static_assert(sizeof(struct stat) == sizeof(struct stat64));

namespace rocemu::shim {
namespace {

constexpr mode_t kDeviceMode = S_IFCHR | 0666;

constinit Next<int(int, const char*, struct stat*, int)> next_fstatat{"fstatat"};
constinit Next<int(const char*, struct stat*)> next_stat{"stat"};
constinit Next<int(const char*, struct stat*)> next_lstat{"lstat"};
constinit Next<int(int, struct stat*)> next_fstat{"fstat"};
constinit Next<int(int, const char*, struct stat*)> next_xstat{"__xstat"};
constinit Next<int(int, const char*, struct stat*)> next_lxstat{"__lxstat"};
constinit Next<int(int, int, struct stat*)> next_fxstat{"__fxstat"};
constinit Next<int(int, int, const char*, struct stat*, int)> next_fxstatat{"__fxstatat"};
constinit Next<int(int, const char*, int, unsigned, struct statx*)> next_statx{"statx"};
constinit Next<int(const char*, int)> next_access{"access"};
constinit Next<int(const char*, int)> next_eaccess{"eaccess"};
constinit Next<int(int, const char*, int, int)> next_faccessat{"faccessat"};

void make_device_stat(std::uint32_t device_index, struct stat* out) {
  std::memset(out, 0, sizeof *out);
  out->st_mode = kDeviceMode;
  out->st_rdev = device_number(device_index);
  out->st_nlink = 1;
  out->st_ino = device_number(device_index);
  out->st_blksize = 4096;
}

void make_device_statx(std::uint32_t device_index, struct statx* out) {
  std::memset(out, 0, sizeof *out);
  out->stx_mask = STATX_BASIC_STATS;
  out->stx_mode = kDeviceMode;
  out->stx_rdev_major = major(device_number(device_index));
  out->stx_rdev_minor = minor(device_number(device_index));
  out->stx_nlink = 1;
  out->stx_ino = device_number(device_index);
  out->stx_blksize = 4096;
}

// Is the call about the descriptor itself: fstatat(fd, "", ..., AT_EMPTY_PATH)?
bool is_about_fd(const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0');
}

bool try_fstat(int fd, struct stat* out) {
  if (fd_kind(fd) != FdKind::kContext) return false;
  make_device_stat(context_at(fd_entry(fd).context).device_index, out);
  return true;
}

// Answers for an emulated path in `result`, or says where to look instead: `path` is changed then.
// `mapped` must outlive `path`. False: go on with `path`.
bool try_path(const char*& path, MappedPath& mapped, int& result, std::uint32_t& device_index) {
  switch (map_path(path, mapped)) {
    case PathKind::kOrdinary:
      return false;
    case PathKind::kRedirect:
    case PathKind::kCounter:
      path = mapped.path;
      return false;
    case PathKind::kAbsent:
      errno = ENOENT;
      result = -1;
      return true;
    case PathKind::kDevice:
      device_index = mapped.device_index;
      result = 0;
      return true;
  }
  return false;
}

// Runs `go_on` with the path to use, or makes the device's answer with `on_device`.
template <typename OnDevice, typename GoOn>
[[gnu::noinline]] int with_candidate(const char* path, OnDevice on_device, GoOn go_on) {
  MappedPath mapped;
  int result = 0;
  std::uint32_t device_index = 0;
  if (!try_path(path, mapped, result, device_index)) return go_on(path);
  return result == 0 ? on_device(device_index) : result;
}

template <typename OnDevice, typename GoOn>
int with_path(const char* path, OnDevice on_device, GoOn go_on) {
  if (!is_candidate(path)) [[likely]]
    return go_on(path);
  return with_candidate(path, on_device, go_on);
}

template <typename GoOn>
int stat_path(const char* path, struct stat* out, GoOn go_on) {
  return with_path(
      path,
      [out](std::uint32_t device_index) {
        make_device_stat(device_index, out);
        return 0;
      },
      go_on);
}

int do_fstatat(int directory_fd, const char* path, struct stat* out, int flags) {
  if (is_about_fd(path, flags) && try_fstat(directory_fd, out)) return 0;
  return stat_path(path, out,
                   [=](const char* used) { return next_fstatat(directory_fd, used, out, flags); });
}

int do_fxstatat(int version, int directory_fd, const char* path, struct stat* out, int flags) {
  if (is_about_fd(path, flags) && try_fstat(directory_fd, out)) return 0;
  return stat_path(path, out, [=](const char* used) {
    return next_fxstatat(version, directory_fd, used, out, flags);
  });
}

int do_fstat(int fd, struct stat* out) { return try_fstat(fd, out) ? 0 : next_fstat(fd, out); }

int do_stat(const char* path, struct stat* out) {
  return stat_path(path, out, [=](const char* used) { return next_stat(used, out); });
}

int do_lstat(const char* path, struct stat* out) {
  return stat_path(path, out, [=](const char* used) { return next_lstat(used, out); });
}

int do_xstat(int version, const char* path, struct stat* out) {
  return stat_path(path, out, [=](const char* used) { return next_xstat(version, used, out); });
}

int do_lxstat(int version, const char* path, struct stat* out) {
  return stat_path(path, out, [=](const char* used) { return next_lxstat(version, used, out); });
}

int do_fxstat(int version, int fd, struct stat* out) {
  return try_fstat(fd, out) ? 0 : next_fxstat(version, fd, out);
}

int device_access(int mode) {
  if ((mode & X_OK) == 0) return 0;
  errno = EACCES;
  return -1;
}

template <typename GoOn>
int access_path(const char* path, int mode, GoOn go_on) {
  return with_path(
      path, [mode](std::uint32_t) { return device_access(mode); }, go_on);
}

}  // namespace
}  // namespace rocemu::shim

namespace shim = rocemu::shim;

ROCEMU_INTERPOSE(int, stat, const char* path, struct stat* out) { return shim::do_stat(path, out); }
ROCEMU_INTERPOSE(int, stat64, const char* path, struct stat* out) {
  return shim::do_stat(path, out);
}
ROCEMU_INTERPOSE(int, lstat, const char* path, struct stat* out) {
  return shim::do_lstat(path, out);
}
ROCEMU_INTERPOSE(int, lstat64, const char* path, struct stat* out) {
  return shim::do_lstat(path, out);
}
ROCEMU_INTERPOSE(int, fstat, int fd, struct stat* out) { return shim::do_fstat(fd, out); }
ROCEMU_INTERPOSE(int, fstat64, int fd, struct stat* out) { return shim::do_fstat(fd, out); }
ROCEMU_INTERPOSE(int, fstatat, int fd, const char* path, struct stat* out, int flags) {
  return shim::do_fstatat(fd, path, out, flags);
}
ROCEMU_INTERPOSE(int, fstatat64, int fd, const char* path, struct stat* out, int flags) {
  return shim::do_fstatat(fd, path, out, flags);
}
// What programs linked before glibc 2.33 call.
ROCEMU_INTERPOSE(int, __xstat, int version, const char* path, struct stat* out) {
  return shim::do_xstat(version, path, out);
}
ROCEMU_INTERPOSE(int, __xstat64, int version, const char* path, struct stat* out) {
  return shim::do_xstat(version, path, out);
}
ROCEMU_INTERPOSE(int, __lxstat, int version, const char* path, struct stat* out) {
  return shim::do_lxstat(version, path, out);
}
ROCEMU_INTERPOSE(int, __lxstat64, int version, const char* path, struct stat* out) {
  return shim::do_lxstat(version, path, out);
}
ROCEMU_INTERPOSE(int, __fxstat, int version, int fd, struct stat* out) {
  return shim::do_fxstat(version, fd, out);
}
ROCEMU_INTERPOSE(int, __fxstat64, int version, int fd, struct stat* out) {
  return shim::do_fxstat(version, fd, out);
}
ROCEMU_INTERPOSE(int, __fxstatat, int version, int fd, const char* path, struct stat* out,
                 int flags) {
  return shim::do_fxstatat(version, fd, path, out, flags);
}
ROCEMU_INTERPOSE(int, __fxstatat64, int version, int fd, const char* path, struct stat* out,
                 int flags) {
  return shim::do_fxstatat(version, fd, path, out, flags);
}
ROCEMU_INTERPOSE(int, statx, int fd, const char* path, int flags, unsigned mask,
                 struct statx* out) {
  using namespace rocemu::shim;
  if (is_about_fd(path, flags) && fd_kind(fd) == FdKind::kContext) {
    make_device_statx(context_at(fd_entry(fd).context).device_index, out);
    return 0;
  }
  return with_path(
      path,
      [out](std::uint32_t device_index) {
        make_device_statx(device_index, out);
        return 0;
      },
      [=](const char* used) { return next_statx(fd, used, flags, mask, out); });
}

ROCEMU_INTERPOSE(int, access, const char* path, int mode) {
  using namespace rocemu::shim;
  return access_path(path, mode, [=](const char* used) { return next_access(used, mode); });
}
ROCEMU_INTERPOSE(int, eaccess, const char* path, int mode) {
  using namespace rocemu::shim;
  return access_path(path, mode, [=](const char* used) { return next_eaccess(used, mode); });
}
ROCEMU_INTERPOSE(int, euidaccess, const char* path, int mode) {
  using namespace rocemu::shim;
  return access_path(path, mode, [=](const char* used) { return next_eaccess(used, mode); });
}
ROCEMU_INTERPOSE(int, faccessat, int fd, const char* path, int mode, int flags) {
  using namespace rocemu::shim;
  return access_path(path, mode,
                     [=](const char* used) { return next_faccessat(fd, used, mode, flags); });
}
