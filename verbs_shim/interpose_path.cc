// Directories and links: listing, readlink, realpath. libc's own opendir and realpath open files
// without passing the interposers, so each of these needs one.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_shim/export.h"
#include "verbs_shim/path_map.h"

namespace rocemu::shim {
namespace {

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

constinit Next<DIR*(const char*)> next_opendir{"opendir"};
constinit Next<int(const char*)> next_chdir{"chdir"};
constinit Next<int(int)> next_fchdir{"fchdir"};
constinit Next<int(const char*, dirent***, Filter, Order)> next_scandir{"scandir"};
constinit Next<ssize_t(const char*, char*, size_t)> next_readlink{"readlink"};
constinit Next<ssize_t(int, const char*, char*, size_t)> next_readlinkat{"readlinkat"};
// Its first version refuses a null buffer.
constinit Next<char*(const char*, char*)> next_realpath{"realpath", "GLIBC_2.3"};

// Runs `go_on` with the path to use. Where there is nothing to list or to read as a link: `failed`,
// with errno as for an absent file or `device_error`.
template <typename R, typename GoOn>
[[gnu::noinline]] R with_candidate(const char* path, int device_error, R failed, GoOn go_on) {
  MappedPath mapped;
  switch (map_path(path, mapped)) {
    case PathKind::kOrdinary:
      return go_on(path);
    case PathKind::kRedirect:
    case PathKind::kCounter:
      return go_on(mapped.path);
    case PathKind::kDevice:
      errno = device_error;
      return failed;
    case PathKind::kAbsent:
      break;
  }
  errno = ENOENT;
  return failed;
}

template <typename R, typename GoOn>
R with_path(const char* path, int device_error, R failed, GoOn go_on) {
  if (!is_candidate(path)) [[likely]]
    return go_on(path);
  return with_candidate(path, device_error, failed, go_on);
}

// `out` may be null (the result is then malloc'ed) and holds PATH_MAX bytes otherwise.
char* copy_path(const char* path, char* out) {
  if (out == nullptr) return strdup(path);
  return std::strcpy(out, path);
}

// A device is its own real path, in its canonical spelling.
char* real_device(std::uint32_t device_index, char* out) {
  char path[64];
  std::snprintf(path, sizeof path, "/dev/infiniband/uverbs%u", device_index);
  return copy_path(path, out);
}

[[gnu::noinline]] char* real_candidate(const char* path, char* out) {
  MappedPath mapped;
  const char* used = path;
  switch (map_path(path, mapped)) {
    case PathKind::kOrdinary:
      return next_realpath(path, out);
    case PathKind::kDevice:
      return real_device(mapped.device_index, out);
    case PathKind::kAbsent:
      errno = ENOENT;
      return nullptr;
    case PathKind::kRedirect:
    case PathKind::kCounter:
      used = mapped.path;
      break;
  }
  char* found = next_realpath(used, out);
  if (found != nullptr) unmap_path(found);
  return found;
}

char* real_path(const char* path, char* out) {
  return is_candidate(path) ? real_candidate(path, out) : next_realpath(path, out);
}

ssize_t do_readlink(const char* path, char* out, size_t size) {
  return with_path<ssize_t>(path, EINVAL, -1,
                            [=](const char* used) { return next_readlink(used, out, size); });
}

ssize_t do_readlinkat(int fd, const char* path, char* out, size_t size) {
  return with_path<ssize_t>(path, EINVAL, -1,
                            [=](const char* used) { return next_readlinkat(fd, used, out, size); });
}

int do_scandir(const char* path, dirent*** list, Filter filter, Order order) {
  return with_path(path, ENOTDIR, -1,
                   [=](const char* used) { return next_scandir(used, list, filter, order); });
}

// The buffers of the fortified forms are as large as the caller says.
[[noreturn]] void overflowed() { std::abort(); }

}  // namespace
}  // namespace rocemu::shim

namespace shim = rocemu::shim;

ROCEMU_INTERPOSE(DIR*, opendir, const char* path) {
  return shim::with_path<DIR*>(path, ENOTDIR, nullptr,
                               [](const char* used) { return shim::next_opendir(used); });
}
// The shell scripts of infiniband-diags go into the tree and list "*".
ROCEMU_INTERPOSE(int, chdir, const char* path) {
  const int done =
      shim::with_path(path, ENOTDIR, -1, [](const char* used) { return shim::next_chdir(used); });
  shim::forget_whereabouts();
  return done;
}
ROCEMU_INTERPOSE(int, fchdir, int fd) {
  const int done = shim::next_fchdir(fd);
  shim::forget_whereabouts();
  return done;
}
ROCEMU_INTERPOSE(int, scandir, const char* path, dirent*** list, shim::Filter filter,
                 shim::Order order) {
  return shim::do_scandir(path, list, filter, order);
}
ROCEMU_INTERPOSE(int, scandir64, const char* path, dirent*** list, shim::Filter filter,
                 shim::Order order) {
  return shim::do_scandir(path, list, filter, order);
}
ROCEMU_INTERPOSE(ssize_t, readlink, const char* path, char* out, size_t size) {
  return shim::do_readlink(path, out, size);
}
ROCEMU_INTERPOSE(ssize_t, __readlink_chk, const char* path, char* out, size_t size, size_t room) {
  if (size > room) shim::overflowed();
  return shim::do_readlink(path, out, size);
}
ROCEMU_INTERPOSE(ssize_t, readlinkat, int fd, const char* path, char* out, size_t size) {
  return shim::do_readlinkat(fd, path, out, size);
}
ROCEMU_INTERPOSE(ssize_t, __readlinkat_chk, int fd, const char* path, char* out, size_t size,
                 size_t room) {
  if (size > room) shim::overflowed();
  return shim::do_readlinkat(fd, path, out, size);
}
ROCEMU_INTERPOSE(char*, realpath, const char* path, char* out) {
  return shim::real_path(path, out);
}
ROCEMU_INTERPOSE(char*, __realpath_chk, const char* path, char* out, size_t room) {
  if (room < PATH_MAX) shim::overflowed();
  return shim::real_path(path, out);
}
ROCEMU_INTERPOSE(char*, canonicalize_file_name, const char* path) {
  return shim::real_path(path, nullptr);
}
