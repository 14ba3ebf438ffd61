// Memory regions and memory windows of one device: keys, ranges, rights, and where the bytes are.
// The control thread registers and removes; shards look up, bind windows and invalidate them. An
// entry's life is one atomic state word: a lookup that saw it valid may use it until the end of its
// turn, and removal returns only after every shard finished a turn (quiescence; see retire()). Keys
// are sparse and random: a keyed permutation of (index, generation) and 8 bits more, so a guessed
// rkey hits with probability live / 2^32, and an old one never aliases a new one soon.
//
// A window names a part of a region under a key and rights of its own (10.6.7). Its fields change
// on the shard that owns the device, and control changes them only in a job of that shard's worker.
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
  kAccessOptional = 0x3ff0'0000,  ///< IBV_ACCESS_OPTIONAL_RANGE: flags that a device may ignore.
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

/// IBV_MW_TYPE_*; type 2 is 2B: a bound window belongs to the QP that bound it.
enum class WindowType : std::uint8_t { kType1 = 1, kType2 = 2 };

/// Who uses a key: windows of type 2 also look at the QP.
struct KeyUser {
  PdId pd;
  QpNum qp;
};

/// A bind work request (10.6.7.2.1, 11.4.1.1). Only the lower 8 bits of `new_rkey` count.
struct WindowBind {
  std::uint32_t window_rkey = 0;  ///< As it is before the bind.
  std::uint32_t new_rkey = 0;
  std::uint32_t region_lkey = 0;
  std::uint64_t va = 0;      ///< In the addresses of the region.
  std::uint64_t length = 0;  ///< 0: a window of type 1 is bound to nothing from now on.
  std::uint32_t access = 0;
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
  /// release(). EINVAL while windows are bound to the region (10.6.7.2.6); a window is unbound.
  Result<void> retire(MrIndex index);
  void release(MrIndex index);
  /// Other contents for a region, the same keys. In a job of the worker. EBUSY while windows are
  /// bound to it; EINVAL as in add(), and nothing has changed.
  Result<void> replace(MrIndex index, const MrAttr& attr);
  const MrAttr& attr(MrIndex index) const;

  /// A window that is bound to nothing. Only its rkey is of use. ENOMEM when full.
  Result<MrKeys> add_window(PdId pd, WindowType type);
  /// The region's key, or that of the window since it was bound last.
  std::uint32_t rkey(MrIndex index) const;
  bool has_windows(MrIndex index) const;
  std::uint32_t in_use() const;

  // Any shard.

  /// Checks an lkey: that it is a region's, its PD, rights (all of `access`) and range for [iova,
  /// iova + length). A zero `length` checks key, PD and rights too.
  MrView lookup(std::uint32_t key, PdId pd, std::uint64_t iova, std::uint64_t length,
                std::uint32_t access) const;
  /// The same for an rkey that came over the wire: a region's or a bound window's.
  MrView lookup_remote(std::uint32_t rkey, const KeyUser& user, std::uint64_t iova,
                       std::uint64_t length, std::uint32_t access) const;

  // The shard that owns the device.

  /// Binds a window (C10-72 ... C10-75, o10-37.2.30 ff.). False, and nothing changed, when the
  /// rules do not allow it.
  [[nodiscard]] bool bind(const WindowBind& request, const KeyUser& user);
  /// Invalidates a bound window of type 2 that belongs to `user` (10.6.7.2.5). False when the key
  /// names none: regions of applications and windows of type 1 are not invalidated.
  [[nodiscard]] bool invalidate(std::uint32_t rkey, const KeyUser& user);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rocemu::memory
