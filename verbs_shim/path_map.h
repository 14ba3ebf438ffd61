// Which paths are emulated, and where they really lead. Paths below /sys/class/infiniband* are
// those of the run-time directory's tree; /dev/infiniband holds the emulated devices and nothing
// else, whatever the machine has there.
#pragma once

#include <limits.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rocemu::shim {

enum class PathKind {
  kOrdinary,  ///< Not ours.
  kRedirect,  ///< `path` is the file to use instead.
  kCounter,  ///< As kRedirect; its text is asked for from the daemon. `attribute` is within `path`.
  kDevice,   ///< /dev/infiniband/uverbs<device_index>, which exists.
  kAbsent,   ///< Does not exist in the emulated world.
};

struct MappedPath {
  PathKind kind;
  std::uint32_t device_index;
  const char* attribute;  ///< The path below the sysfs root.
  char path[PATH_MAX];
};

namespace detail {
PathKind map_candidate(const char* path, MappedPath& out);
bool look_where_we_are();

/// Whether the working directory is inside the emulated sysfs.
enum class Whereabouts : std::uint8_t { kUnknown, kOutside, kInside };
extern std::atomic<Whereabouts> g_whereabouts;
}  // namespace detail

/// Cheap test that is true for every emulated path and few others.
inline bool is_candidate(const char* path) {
  if (path == nullptr || path[0] != '/') return false;
  switch (path[1]) {
    case 's':
      return path[2] == 'y' && path[3] == 's';
    case 'd':
      return path[2] == 'e' && path[3] == 'v';
    case '/':
    case '.':
      return true;
    default:
      return false;
  }
}

/// True for a relative path while the working directory is inside the emulated sysfs: what it names
/// may be a counter. A byte load, after the first look.
inline bool is_below_tree(const char* path) {
  if (path == nullptr || path[0] == '/') return false;
  // Relaxed: nothing else is read on the strength of it.
  switch (detail::g_whereabouts.load(std::memory_order_relaxed)) {
    case detail::Whereabouts::kOutside:
      return false;
    case detail::Whereabouts::kInside:
      return true;
    case detail::Whereabouts::kUnknown:
      break;
  }
  return detail::look_where_we_are();
}
/// The working directory changed: look again when it matters.
void forget_whereabouts();

/// Maps an absolute path; relative ones are ordinary. `out` is filled unless kOrdinary is returned.
/// Any thread; may ask once whether there is a daemon.
inline PathKind map_path(const char* path, MappedPath& out) {
  return is_candidate(path) ? detail::map_candidate(path, out) : PathKind::kOrdinary;
}

/// As map_path for openat-like calls: a relative path below a directory that was opened inside the
/// emulated sysfs, or below the working directory (AT_FDCWD), is looked at too, for counters.
PathKind map_path_at(int directory_fd, const char* path, MappedPath& out);

/// The number of an emulated device, as stat() shows it.
std::uint64_t device_number(std::uint32_t device_index);

/// A path below the run-time directory's tree as the application knows it, in place; others stay.
void unmap_path(char* path);

}  // namespace rocemu::shim
