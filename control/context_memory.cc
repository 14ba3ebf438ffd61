#include "control/context_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace rocemu::control {

std::optional<std::uint64_t> RingAllocator::allocate(std::uint64_t bytes) {
  const std::uint64_t size = round_up(bytes);
  if (size == 0 || size < bytes) return std::nullopt;
  const auto found = freed_.find(size);
  if (found != freed_.end()) {
    const std::uint64_t offset = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) freed_.erase(found);
    return offset;
  }
  if (size > top_) return std::nullopt;
  return top_ -= size;
}

void RingAllocator::release(std::uint64_t offset, std::uint64_t bytes) {
  freed_[round_up(bytes)].push_back(offset);
}

Result<SharedPages> SharedPages::make(const char* name, std::uint64_t bytes) {
  SharedPages out;
  out.fd = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!out.fd.is_open()) return Error{errno, "no memfd"};
  if (::ftruncate(out.fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Error{errno, "the memfd cannot be sized"};
  }
  // No one can make it shorter under the daemon's mapping.
  if (::fcntl(out.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error{errno, "the memfd cannot be sealed"};
  }
  void* base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, out.fd.get(), 0);
  if (base == MAP_FAILED) return Error{ENOMEM, "the memfd cannot be mapped"};
  out.bytes = {static_cast<std::byte*>(base), bytes};
  return out;
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : fd(std::move(other.fd)), bytes(std::exchange(other.bytes, {})) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(fd, other.fd);
  std::swap(bytes, other.bytes);
  return *this;
}

SharedPages::~SharedPages() {
  if (!bytes.empty()) ::munmap(bytes.data(), bytes.size());
}

Result<ContextMemory> ContextMemory::make() {
  auto pages = SharedPages::make("rocemu-rings", kBytes);
  if (!pages) return pages.error();
  ContextMemory out;
  out.pages_ = std::move(*pages);
  return out;
}

void ContextMemory::release(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t size = RingAllocator::round_up(bytes);
  ::fallocate(pages_.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset), static_cast<off_t>(size));
  allocator_.release(offset, bytes);
}

}  // namespace rocemu::control
