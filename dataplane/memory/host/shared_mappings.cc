#include "dataplane/memory/host/shared_mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace rocemu::memory {
namespace {

constexpr std::uint64_t kPageMask = 4095;

// True when no one can make the file shorter.
bool is_unshrinkable(int fd, const Mapping& mapping) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return true;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || status.st_nlink != 0) return false;
  // MAP_SHARED | MAP_ANONYMOUS: a file without a name or a descriptor.
  return mapping.path == "/dev/zero (deleted)";
}

int open_mapping(pid_t pid, const Mapping& mapping, RangeAccess access) {
  char path[96];
  std::snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", static_cast<int>(pid),
                static_cast<unsigned long long>(mapping.begin),
                static_cast<unsigned long long>(mapping.end));
  return ::open(path, (access == RangeAccess::kReadWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC);
}

}  // namespace

SharedMapping::SharedMapping(SharedMapping&& other) noexcept { *this = std::move(other); }

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

std::optional<SharedMapping> SharedMapping::map(const AddressSpaces& spaces, SpaceId space,
                                                std::uint64_t va, std::uint64_t length,
                                                RangeAccess access) {
  if (length == 0) return std::nullopt;
  const auto found = spaces.mappings(space, va, length);
  if (found.size() != 1 || !found.front().is_shared) return std::nullopt;
  const Mapping& mapping = found.front();
  if (va < mapping.begin || va + length > mapping.end) return std::nullopt;
  const int fd = open_mapping(spaces.pid_of(space), mapping, access);
  if (fd < 0) return std::nullopt;
  // The pid may have been reused or have changed its image since: then the space is dead and its
  // mappings are empty.
  const bool is_same = !spaces.mappings(space, va, length).empty();
  std::optional<SharedMapping> out;
  if (is_same && is_unshrinkable(fd, mapping)) {
    const std::uint64_t first_page = va & ~kPageMask;
    const std::size_t bytes = (va - first_page + length + kPageMask) & ~kPageMask;
    const int protection = PROT_READ | (access == RangeAccess::kReadWrite ? PROT_WRITE : 0);
    const auto offset = static_cast<off_t>(mapping.file_offset + (first_page - mapping.begin));
    void* base = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, offset);
    if (base != MAP_FAILED) {
      out.emplace();
      out->base_ = base;
      out->mapped_bytes_ = bytes;
      out->data_ = static_cast<std::byte*>(base) + (va - first_page);
    }
  }
  ::close(fd);
  return out;
}

}  // namespace rocemu::memory
