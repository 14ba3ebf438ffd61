// The mapping is a matter of prefixes after the path was tidied ("//", "/./"); ".." is left to the
// file system, inside the tree that a prefix chose.
#include "verbs_shim/path_map.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rocemu/abi/socket.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/rpc.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

constexpr char kDeviceDirectory[] = "/dev/infiniband";
constexpr char kDevicePrefix[] = "/dev/infiniband/uverbs";
constexpr char kDeviceListing[] = "/class/infiniband_verbs";  // holds uverbsN too
constexpr const char* kClasses[] = {"/sys/class/infiniband", "/sys/class/infiniband_verbs",
                                    "/sys/class/infiniband_mad", "/sys/class/infiniband_cm",
                                    "/sys/class/misc/rdma_cm"};

// Copies `path` without repeated slashes, "." components and trailing slashes. False: too long.
bool tidy(const char* path, char (&out)[PATH_MAX]) {
  std::size_t length = 0;
  while (*path != '\0') {
    if (*path == '/') {
      ++path;
      continue;
    }
    const std::size_t component = strcspn(path, "/");
    if (component != 1 || path[0] != '.') {
      if (length + 1 + component >= PATH_MAX) return false;
      out[length++] = '/';
      std::memcpy(out + length, path, component);
      length += component;
    }
    path += component;
  }
  out[length] = '\0';
  return true;
}

bool is_at_or_below(const char* path, const char* directory) {
  const std::size_t length = std::strlen(directory);
  if (std::strncmp(path, directory, length) != 0) return false;
  return path[length] == '\0' || path[length] == '/';
}

bool is_emulated_class(const char* path) {
  for (const char* name : kClasses) {
    if (is_at_or_below(path, name)) return true;
  }
  return false;
}

// "class/infiniband/<device>/ports/<port>/{counters,hw_counters}/<name>"
bool is_counter(const char* attribute) {
  constexpr char kRoot[] = "class/infiniband/";
  if (std::strncmp(attribute, kRoot, sizeof kRoot - 1) != 0) return false;
  const char* ports = std::strchr(attribute + sizeof kRoot - 1, '/');
  if (ports == nullptr || std::strncmp(ports, "/ports/", 7) != 0) return false;
  const char* group = std::strchr(ports + 7, '/');
  if (group == nullptr) return false;
  const std::size_t skip = std::strncmp(group, "/counters/", 10) == 0      ? 10
                           : std::strncmp(group, "/hw_counters/", 13) == 0 ? 13
                                                                           : 0;
  if (skip == 0 || group[skip] == '\0' || group[skip] == '.') return false;
  return std::strchr(group + skip, '/') == nullptr;
}

// The file that stands for `below` ("/class/...") in the run-time directory's tree.
PathKind redirect(const char* below, MappedPath& out) {
  const int length = std::snprintf(out.path, sizeof out.path, "%s/%s%s", runtime_directory(),
                                   abi::kSysfsName, below);
  if (length <= 0 || static_cast<std::size_t>(length) >= sizeof out.path) return PathKind::kAbsent;
  out.attribute = out.path + (static_cast<std::size_t>(length) - std::strlen(below)) + 1;
  return is_counter(out.attribute) ? PathKind::kCounter : PathKind::kRedirect;
}

// The number that is all of `digits`; false for anything else, leading zeros included.
bool parse_index(const char* digits, std::uint32_t& index) {
  if (digits[0] == '\0' || std::strlen(digits) > 4) return false;
  if (digits[0] == '0' && digits[1] != '\0') return false;
  index = 0;
  for (; *digits != '\0'; ++digits) {
    if (*digits < '0' || *digits > '9') return false;
    index = index * 10 + static_cast<std::uint32_t>(*digits - '0');
  }
  return true;
}

PathKind map_device(const char* tidied, MappedPath& out) {
  const std::size_t prefix = sizeof kDevicePrefix - 1;
  if (std::strncmp(tidied, kDevicePrefix, prefix) != 0) return PathKind::kAbsent;
  if (!parse_index(tidied + prefix, out.device_index)) return PathKind::kAbsent;
  char below[64];
  std::snprintf(below, sizeof below, "%s/uverbs%u", kDeviceListing, out.device_index);
  struct stat status {};
  const int saved = errno;
  const bool exists =
      redirect(below, out) == PathKind::kRedirect && sys::stat(out.path, &status) == 0;
  errno = saved;
  return exists ? PathKind::kDevice : PathKind::kAbsent;
}

// The directory behind a link of /proc, and its length; 0 when it is not in the tree.
std::size_t read_directory(const char* link, char (&out)[2 * PATH_MAX]) {
  const int saved = errno;
  const ssize_t length = sys::readlink(link, out, PATH_MAX - 1);
  errno = saved;
  if (length <= 0) return 0;
  out[length] = '\0';
  char root[PATH_MAX];
  std::snprintf(root, sizeof root, "%s/%s", runtime_directory(), abi::kSysfsName);
  return is_at_or_below(out, root) ? static_cast<std::size_t>(length) : 0;
}

}  // namespace

PathKind detail::map_candidate(const char* path, MappedPath& out) {
  char tidied[PATH_MAX];
  if (!tidy(path, tidied)) return PathKind::kOrdinary;
  const bool is_device = is_at_or_below(tidied, kDeviceDirectory);
  if (!is_device && !is_emulated_class(tidied)) return PathKind::kOrdinary;
  if (!is_daemon_there()) return out.kind = PathKind::kAbsent;
  if (!is_device) return out.kind = redirect(tidied + std::strlen("/sys"), out);
  if (tidied[sizeof kDeviceDirectory - 1] == '\0') return out.kind = redirect(kDeviceListing, out);
  return out.kind = map_device(tidied, out);
}

constinit std::atomic<detail::Whereabouts> detail::g_whereabouts{Whereabouts::kUnknown};

bool detail::look_where_we_are() {
  char link[2 * PATH_MAX];
  const bool is_inside = read_directory("/proc/self/cwd", link) != 0;
  // A child of vfork would write into its parent's.
  if (is_owner()) {
    g_whereabouts.store(is_inside ? Whereabouts::kInside : Whereabouts::kOutside,
                        std::memory_order_relaxed);
  }
  return is_inside;
}

void forget_whereabouts() {
  if (!is_owner()) return;
  detail::g_whereabouts.store(detail::Whereabouts::kUnknown, std::memory_order_relaxed);
}

PathKind map_path_at(int directory_fd, const char* path, MappedPath& out) {
  if (path == nullptr || path[0] == '/') return map_path(path, out);
  char link[64] = "/proc/self/cwd";
  if (directory_fd != AT_FDCWD) {
    if (fd_kind(directory_fd) != FdKind::kSysfsDir) return PathKind::kOrdinary;
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", directory_fd);
  } else if (!is_below_tree(path)) {
    return PathKind::kOrdinary;
  }
  char joined[2 * PATH_MAX];
  // The mark may be stale (closedir closes unseen): only what the link says counts.
  const std::size_t length = read_directory(link, joined);
  if (length == 0) return PathKind::kOrdinary;
  std::snprintf(joined + length, sizeof joined - length, "/%s", path);
  const std::size_t root = runtime_directory_length() + 1 + std::strlen(abi::kSysfsName);
  char tidied[PATH_MAX];
  if (!tidy(joined + root, tidied)) return PathKind::kOrdinary;
  return out.kind = redirect(tidied, out);
}

std::uint64_t device_number(std::uint32_t device_index) {
  return makedev(abi::kUverbsMajor, abi::kUverbsFirstMinor + device_index);
}

void unmap_path(char* path) {
  char prefix[PATH_MAX];
  const int length =
      std::snprintf(prefix, sizeof prefix, "%s/%s", runtime_directory(), abi::kSysfsName);
  if (length <= 0 || !is_at_or_below(path, prefix)) return;
  char* below = path + length;
  char original[PATH_MAX];
  std::snprintf(original, sizeof original, "/sys%s", below);
  if (!is_emulated_class(original)) return;
  std::memmove(path + std::strlen("/sys"), below, std::strlen(below) + 1);
  std::memcpy(path, "/sys", std::strlen("/sys"));
}

}  // namespace rocemu::shim
