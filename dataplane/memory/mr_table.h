// Memory regions of one device: keys, ranges, rights, and where the bytes are. The control thread
// registers and removes; shards only look up. An entry's life is one atomic state word: a lookup
// that saw it valid may use it until the end of its turn, and removal returns only after every
// shard finished a turn (quiescence; see retire()). Keys are sparse and random: a keyed permutation
// of (index, generation), so a guessed rkey hits with probability live / 2^32, and an old one never
// aliases a new one soon.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rocemu/base/ids.h"
#include "rocemu/base/prng.h"
#include "rocemu/base/result.h"

namespace rocemu::memory {

/// IBV_ACCESS_* values.
enum AccessFlags : std::uint32_t {
  kAccessLocalWrite = 1 << 0,
  kAccessRemoteWrite = 1 << 1,
  kAccessRemoteRead = 1 << 2,
  kAccessRemoteAtomic = 1 << 3,
  kAccessMwBind = 1 << 4,
  kAccessZeroBased = 1 << 5,
  kAccessOnDemand = 1 << 6,
  kAccessHugetlb = 1 << 7,
  kAccessFlushGlobal = 1 << 8,
  kAccessFlushPersistent = 1 << 9,
  kAccessRelaxedOrdering = 1 << 20,
};

/// What a region is made of. `iova` is what work requests and RETHs name; `client_va` where the
/// bytes are in the client's space. A client's bytes in [direct_begin, direct_begin + direct_bytes)
/// (offsets into the region) are mapped in the daemon at `direct_base`; all others are reached by
/// copying through the memory port.
struct MrAttr {
  PdId pd;
  SpaceId space;
  std::uint64_t iova = 0;
  std::uint64_t client_va = 0;
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::byte* direct_base = nullptr;
  std::uint64_t direct_begin = 0;
  std::uint64_t direct_bytes = 0;
};

struct MrKeys {
  MrIndex index;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;  ///< The same value as lkey, as librxe expects.
};

enum class MrFault : std::uint8_t { kNone, kBadKey, kWrongPd, kNoRight, kOutOfRange };

/// The outcome of a lookup: a stable copy of what an access needs. Trivially copyable.
struct MrView {
  MrFault fault = MrFault::kBadKey;
  MrIndex index;
  SpaceId space;
  std::uint64_t client_va = 0;       ///< Where the access begins in the client's space.
  std::byte* direct_base = nullptr;  ///< Where offset direct_begin is mapped, or null.
  std::uint64_t offset = 0;          ///< Of the access in the region.
  std::uint64_t direct_begin = 0;
  std::uint64_t direct_bytes = 0;
};

class MrTable {
 public:
  /// `capacity`: regions at most, up to 2^20. `secret` keys the permutation.
  MrTable(std::uint32_t capacity, Prng secret);
  ~MrTable();

  // Control thread only.

  /// ENOMEM when full, EINVAL when the range wraps or rights contradict (remote write or atomic
  /// without local write).
  Result<MrKeys> add(const MrAttr& attr);
  /// Stops new lookups at once. The caller then waits until each shard ended a turn, and calls
  /// release().
  Result<void> retire(MrIndex index);
  void release(MrIndex index);
  const MrAttr& attr(MrIndex index) const;
  std::uint32_t in_use() const;

  // Any shard.

  /// Checks key, PD, rights (all of `access`) and range for [iova, iova + length). A zero `length`
  /// checks key, PD and rights too.
  MrView lookup(std::uint32_t key, PdId pd, std::uint64_t iova, std::uint64_t length,
                std::uint32_t access) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rocemu::memory
