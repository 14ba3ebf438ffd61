#include "dataplane/memory/host/address_spaces.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "rocemu/base/check.h"

namespace rocemu::memory {
namespace {

int open_proc(pid_t pid, const char* name, int flags) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  return ::open(path.c_str(), flags | O_CLOEXEC);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[64 * 1024];
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, buffer, sizeof buffer, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    at += n;
  }
}

std::uint64_t take_hex(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  (void)error;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// "begin-end perms offset device inode path"
Mapping parse_line(std::string_view line) {
  Mapping m;
  m.begin = take_hex(line);
  line.remove_prefix(std::min<std::size_t>(1, line.size()));
  m.end = take_hex(line);
  if (line.size() < 6) return m;
  m.is_readable = line[1] == 'r';
  m.is_writable = line[2] == 'w';
  m.is_shared = line[4] == 's';
  line.remove_prefix(6);
  m.file_offset = take_hex(line);
  const std::size_t path = line.find_first_of("/[");
  if (path != std::string_view::npos) m.path = line.substr(path);
  return m;
}

}  // namespace

AddressSpaces::AddressSpaces(std::uint32_t capacity) : spaces_(capacity) {
  for (std::uint32_t i = capacity; i != 0; --i) free_.push_back(i - 1);
}

AddressSpaces::~AddressSpaces() {
  for (const Space& space : spaces_) {
    if (space.memory_fd >= 0) ::close(space.memory_fd);
    if (space.maps_fd >= 0) ::close(space.maps_fd);
  }
}

Result<SpaceId> AddressSpaces::open(pid_t pid) {
  if (free_.empty()) return Error{ENOMEM, "too many client processes"};
  const int memory_fd = open_proc(pid, "mem", O_RDWR);
  if (memory_fd < 0) {
    const int error = errno == EACCES ? EPERM : errno == ENOENT ? ESRCH : errno;
    return Error{error, "the memory of process " + std::to_string(pid) +
                            " cannot be opened: " + std::strerror(errno)};
  }
  const int maps_fd = open_proc(pid, "maps", O_RDONLY);
  if (maps_fd < 0) {
    ::close(memory_fd);
    return Error{ESRCH, "process " + std::to_string(pid) + " is gone"};
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  spaces_[index] = {memory_fd, maps_fd, pid, false};
  return SpaceId{index};
}

void AddressSpaces::suspend(SpaceId space) { spaces_[space.value].is_suspended = true; }

void AddressSpaces::resume(SpaceId space) { spaces_[space.value].is_suspended = false; }

void AddressSpaces::close(SpaceId space) {
  ROCEMU_CHECK(space.value < spaces_.size());
  Space& s = spaces_[space.value];
  ROCEMU_CHECK(s.memory_fd >= 0);
  ::close(s.memory_fd);
  ::close(s.maps_fd);
  s = Space{};
  free_.push_back(space.value);
}

pid_t AddressSpaces::pid_of(SpaceId space) const { return spaces_[space.value].pid; }

std::vector<Mapping> AddressSpaces::mappings(SpaceId space, std::uint64_t va,
                                             std::uint64_t length) const {
  std::vector<Mapping> out;
  const std::string text = read_all(spaces_[space.value].maps_fd);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    std::string_view peek = line;
    if (take_hex(peek) >= va + std::max<std::uint64_t>(length, 1)) break;
    Mapping m = parse_line(line);
    if (m.end > va) out.push_back(std::move(m));
  }
  return out;
}

Result<void> AddressSpaces::probe_range(SpaceId space, std::uint64_t va, std::uint64_t length,
                                        RangeAccess access) const {
  if (file_of(space) < 0) return Error{EFAULT, "the process has another address space now"};
  if (va + length < va) return Error{EINVAL, "the range wraps around"};
  if (length == 0) return {};
  std::uint64_t covered = va;
  for (const Mapping& m : mappings(space, va, length)) {
    const bool is_allowed = m.is_readable && (access == RangeAccess::kRead || m.is_writable);
    if (m.begin > covered || !is_allowed) break;
    covered = m.end;
  }
  if (covered < va + length) return Error{EFAULT, "the range is not mapped with these rights"};
  return {};
}

}  // namespace rocemu::memory
