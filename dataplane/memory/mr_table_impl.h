// The table's insides, shared by regions (mr_table.cc) and windows (window_table.cc). Regions and
// windows are entries of one table, so that one key leads to one entry, whatever it is.
#pragma once

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <optional>

#include "dataplane/memory/key_cipher.h"
#include "dataplane/memory/mr_table.h"

namespace rocemu::memory {

inline constexpr std::uint32_t kSlotBits = 20;
inline constexpr std::uint32_t kSlotMask = (1u << kSlotBits) - 1;
/// Generations of a slot: 4 bits in the permuted upper part of the key, 8 in the lower part.
inline constexpr std::uint32_t kMaxGeneration = (1u << (32 - kSlotBits)) - 1;

enum class EntryKind : std::uint8_t {
  kRegion,
  kWindow1,  ///< A window of type 1.
  kWindow2,  ///< A window of type 2B.
};

struct Entry {
  std::atomic<std::uint64_t> state;  ///< kValid and the key.
  std::uint32_t generation;
  EntryKind kind;
  MrAttr attr;                  ///< Of a window: PD, and since it was bound iova, length, access.
  std::uint32_t bound_windows;  ///< Of a region.
  std::uint32_t region;         ///< Of a bound window: the region's slot.
  bool is_bound;                ///< Of a window.
  QpNum qp;                     ///< Of a bound window of type 2: who bound it.

  static constexpr std::uint64_t kValid = std::uint64_t{1} << 32;

  void publish(std::uint32_t key) {
    state.store(kValid | key, std::memory_order_release);  // pairs with holds()
  }
  void withdraw() {
    state.store(state.load(std::memory_order_relaxed) & ~kValid, std::memory_order_release);
  }
  bool is_valid() const { return (state.load(std::memory_order_relaxed) & kValid) != 0; }
  std::uint32_t key() const {
    return static_cast<std::uint32_t>(state.load(std::memory_order_relaxed));
  }
  bool holds(std::uint32_t key) const {
    return state.load(std::memory_order_acquire) == (kValid | key);  // pairs with publish()
  }
};

struct MrTable::Impl {
  // Zeroed pages that cost nothing until an entry in them is used; an all-zero Entry is an invalid
  // one.
  Impl(std::uint32_t entry_count, Prng secret)
      : capacity(entry_count),
        cipher(secret),
        entries(static_cast<Entry*>(std::calloc(entry_count, sizeof(Entry)))) {
    if (entries == nullptr) throw std::bad_alloc();
  }

  /// The oldest freed slot, so that a key rests as long as it can; untouched slots come first.
  std::optional<std::uint32_t> take_slot() {
    std::optional<std::uint32_t> slot;
    if (untouched < capacity) {
      slot = untouched++;
    } else if (!freed.empty()) {
      slot = freed.front();
      freed.pop_front();
    }
    if (slot) ++in_use;
    return slot;
  }

  /// A new key for the slot; never 0, which programs use for "none".
  std::uint32_t make_key(std::uint32_t slot) {
    Entry& entry = entries.get()[slot];
    std::uint32_t key = 0;
    while (key == 0) {
      entry.generation = entry.generation == kMaxGeneration ? 0 : entry.generation + 1;
      const std::uint32_t upper = cipher.encrypt((entry.generation >> 8) << kSlotBits | slot);
      key = upper << 8 | ((entry.generation & 0xff) ^ cipher.mask_of(upper));
    }
    return key;
  }

  /// The valid entry that holds this key, or null.
  Entry* find(std::uint32_t key) const {
    const std::uint32_t slot = cipher.decrypt(key >> 8) & kSlotMask;
    if (slot >= capacity) return nullptr;
    Entry& entry = entries.get()[slot];
    return entry.holds(key) ? &entry : nullptr;
  }
  Entry* find(MrIndex index, EntryKind kind) const {
    if (index.value >= untouched) return nullptr;
    Entry& entry = entries.get()[index.value];
    return entry.is_valid() && entry.kind == kind ? &entry : nullptr;
  }

  /// The access as the region sees it.
  MrView view_of(const Entry& region, PdId pd, std::uint64_t iova, std::uint64_t length,
                 std::uint32_t access) const {
    const MrAttr& attr = region.attr;
    MrView view;
    view.fault = fault_of(attr, pd, iova, length, access);
    if (view.fault == MrFault::kNone) {
      view.offset = iova - attr.iova;
      view.client_va = attr.client_va + view.offset;
    }
    view.index = MrIndex{static_cast<std::uint32_t>(&region - entries.get())};
    view.space = attr.space;
    view.direct_base = attr.direct_base;
    view.direct_begin = attr.direct_begin;
    view.direct_bytes = attr.direct_bytes;
    return view;
  }

  static MrFault fault_of(const MrAttr& attr, PdId pd, std::uint64_t iova, std::uint64_t length,
                          std::uint32_t access) {
    if (attr.pd != pd) return MrFault::kWrongPd;
    if ((attr.access & access) != access) return MrFault::kNoRight;
    if (length != 0 &&
        (iova < attr.iova || length > attr.length || iova - attr.iova > attr.length - length)) {
      return MrFault::kOutOfRange;
    }
    return MrFault::kNone;
  }

  /// A window leaves its region, if it has one.
  void unbind(Entry& window) const {
    if (!window.is_bound) return;
    --entries.get()[window.region].bound_windows;
    window.is_bound = false;
    window.qp = QpNum::none();
    window.attr.iova = window.attr.length = 0;
    window.attr.access = 0;
  }

  struct FreeEntries {
    void operator()(Entry* p) const { std::free(p); }
  };

  std::uint32_t capacity;
  KeyCipher cipher;
  std::unique_ptr<Entry[], FreeEntries> entries;
  std::uint32_t untouched = 0;
  std::uint32_t in_use = 0;
  std::deque<std::uint32_t> freed;
};

}  // namespace rocemu::memory
