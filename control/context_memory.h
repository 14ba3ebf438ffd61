// A verbs context's ring memory: one sparse memfd, sealed against resizing, that the client maps
// piece by piece and the daemon whole. Rings are handed out at descending offsets: neighbours in
// the file then become neighbours in the client's address space and the kernel merges their
// mappings, so that 100,000 queue pairs fit below vm.max_map_count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "control/unique_fd.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// Offsets in the file, page by page; no memory is touched.
class RingAllocator {
 public:
  explicit RingAllocator(std::uint64_t bytes) : top_(bytes) {}

  /// `bytes` rounded up to pages; nothing when the file is used up.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  void release(std::uint64_t offset, std::uint64_t bytes);

  static constexpr std::uint64_t kPageBytes = 4096;
  static std::uint64_t round_up(std::uint64_t bytes) {
    return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  }

 private:
  std::uint64_t top_;                                          ///< All below is untouched.
  std::map<std::uint64_t, std::vector<std::uint64_t>> freed_;  ///< By rounded size.
};

/// A sealed memfd of `bytes`, mapped; for doorbell pages.
struct SharedPages {
  UniqueFd fd;
  std::span<std::byte> bytes;

  static Result<SharedPages> make(const char* name, std::uint64_t bytes);
  SharedPages() = default;
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();
};

class ContextMemory {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{1} << 38;

  /// ENOMEM, EMFILE.
  static Result<ContextMemory> make();

  int fd() const { return pages_.fd.get(); }
  std::span<std::byte> bytes() const { return pages_.bytes; }
  std::optional<std::uint64_t> allocate(std::uint64_t bytes) { return allocator_.allocate(bytes); }
  /// Also gives the pages back to the system.
  void release(std::uint64_t offset, std::uint64_t bytes);

 private:
  ContextMemory() : allocator_(kBytes) {}

  SharedPages pages_;
  RingAllocator allocator_;
};

}  // namespace rocemu::control
