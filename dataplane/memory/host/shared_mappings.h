// The `shared` backend: a registered range that is shared memory already is mapped into the daemon,
// and then needs no copying through the kernel. Only where the file cannot be truncated under us (a
// load past its end would be a SIGBUS): a memfd sealed against shrinking, or anonymous shared
// memory, whose file has no name. Needs the right to open /proc/PID/map_files; else nothing is
// mapped and the range is copied. Control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/memory/host/address_spaces.h"

namespace rocemu::memory {

class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  /// Maps [va, va + length) when all of it lies in one suitable mapping; nothing otherwise.
  static std::optional<SharedMapping> map(const AddressSpaces& spaces, SpaceId space,
                                          std::uint64_t va, std::uint64_t length,
                                          RangeAccess access);

  /// The range's bytes.
  std::byte* data() const { return data_; }

 private:
  void* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace rocemu::memory
