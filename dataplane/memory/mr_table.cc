// The region table. The control thread writes an entry only while its state says invalid and no
// shard can be reading it; the release store of the state publishes it, and a shard's acquire load
// pairs with that.
#include "dataplane/memory/mr_table.h"

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <new>

#include "dataplane/memory/key_cipher.h"
#include "rocemu/base/check.h"

namespace rocemu::memory {
namespace {

constexpr std::uint32_t kIndexBits = 20;
constexpr std::uint32_t kIndexMask = (1u << kIndexBits) - 1;
constexpr std::uint32_t kMaxGeneration = (1u << (32 - kIndexBits)) - 1;

// State word: generation << 1 | valid.
constexpr std::uint32_t kValid = 1;

struct Entry {
  std::atomic<std::uint32_t> state;
  std::uint32_t generation;
  std::uint32_t key;
  MrAttr attr;
};

struct Free {
  void operator()(Entry* p) const { std::free(p); }
};

bool wraps(std::uint64_t begin, std::uint64_t length) { return begin + length < begin; }

bool is_access_legal(std::uint32_t access) {
  // Remote write and atomic need local write (11.2.8.2).
  constexpr std::uint32_t kNeedsLocal = kAccessRemoteWrite | kAccessRemoteAtomic;
  return (access & kNeedsLocal) == 0 || (access & kAccessLocalWrite) != 0;
}

}  // namespace

struct MrTable::Impl {
  // Zeroed pages that cost nothing until an entry in them is used; an all-zero Entry is an invalid
  // one.
  Impl(std::uint32_t entry_count, Prng secret)
      : capacity(entry_count),
        cipher(secret),
        entries(static_cast<Entry*>(std::calloc(entry_count, sizeof(Entry)))) {
    if (entries == nullptr) throw std::bad_alloc();
  }

  // The oldest freed slot, so that a key rests as long as it can; untouched slots come first.
  std::optional<std::uint32_t> take_slot() {
    if (untouched < capacity) return untouched++;
    if (freed.empty()) return std::nullopt;
    const std::uint32_t slot = freed.front();
    freed.pop_front();
    return slot;
  }

  // A new key for the slot; never 0, which programs use for "none".
  void make_key(std::uint32_t slot) {
    Entry& entry = entries.get()[slot];
    do {
      entry.generation = entry.generation == kMaxGeneration ? 0 : entry.generation + 1;
      entry.key = cipher.encrypt(entry.generation << kIndexBits | slot);
    } while (entry.key == 0);
  }

  std::uint32_t capacity;
  KeyCipher cipher;
  std::unique_ptr<Entry[], Free> entries;
  std::uint32_t untouched = 0;
  std::uint32_t in_use = 0;
  std::deque<std::uint32_t> freed;
};

MrTable::MrTable(std::uint32_t capacity, Prng secret) {
  ROCEMU_CHECK(capacity <= kIndexMask + 1);
  impl_ = std::make_unique<Impl>(capacity, secret);
}

MrTable::~MrTable() = default;

Result<MrKeys> MrTable::add(const MrAttr& attr) {
  if (wraps(attr.iova, attr.length) || wraps(attr.client_va, attr.length)) {
    return Error{EINVAL, "the memory region wraps around the address space"};
  }
  if (!is_access_legal(attr.access)) {
    return Error{EINVAL, "remote write or atomic access needs local write access"};
  }
  const auto slot = impl_->take_slot();
  if (!slot) return Error{ENOMEM, "the device has no memory region left"};
  impl_->make_key(*slot);
  Entry& entry = impl_->entries.get()[*slot];
  entry.attr = attr;
  entry.state.store(entry.generation << 1 | kValid,
                    std::memory_order_release);  // pairs with lookup
  ++impl_->in_use;
  return MrKeys{MrIndex{*slot}, entry.key, entry.key};
}

Result<void> MrTable::retire(MrIndex index) {
  if (index.value >= impl_->untouched) return Error{EINVAL, "no such memory region"};
  Entry& entry = impl_->entries.get()[index.value];
  const std::uint32_t state = entry.state.load(std::memory_order_relaxed);  // control's own
  if ((state & kValid) == 0) return Error{EINVAL, "no such memory region"};
  entry.state.store(state & ~kValid, std::memory_order_release);  // pairs with lookup
  return {};
}

void MrTable::release(MrIndex index) {
  ROCEMU_CHECK(index.value < impl_->untouched);
  ROCEMU_CHECK((impl_->entries.get()[index.value].state.load(std::memory_order_relaxed) & kValid) ==
               0);
  impl_->freed.push_back(index.value);
  --impl_->in_use;
}

const MrAttr& MrTable::attr(MrIndex index) const {
  ROCEMU_CHECK(index.value < impl_->untouched);
  return impl_->entries.get()[index.value].attr;
}

std::uint32_t MrTable::in_use() const { return impl_->in_use; }

MrView MrTable::lookup(std::uint32_t key, PdId pd, std::uint64_t iova, std::uint64_t length,
                       std::uint32_t access) const {
  MrView view;
  const std::uint32_t plain = impl_->cipher.decrypt(key);
  const std::uint32_t slot = plain & kIndexMask;
  if (slot >= impl_->capacity) return view;
  const Entry& entry = impl_->entries.get()[slot];
  // acquire: pairs with the release of add() and retire().
  if (entry.state.load(std::memory_order_acquire) != (plain >> kIndexBits << 1 | kValid))
    return view;
  const MrAttr& attr = entry.attr;
  if (attr.pd != pd) {
    view.fault = MrFault::kWrongPd;
  } else if ((attr.access & access) != access) {
    view.fault = MrFault::kNoRight;
  } else if (length != 0 && (iova < attr.iova || length > attr.length ||
                             iova - attr.iova > attr.length - length)) {
    view.fault = MrFault::kOutOfRange;
  } else {
    view.fault = MrFault::kNone;
    view.offset = iova - attr.iova;
    view.client_va = attr.client_va + view.offset;
  }
  view.index = MrIndex{slot};
  view.space = attr.space;
  view.direct_base = attr.direct_base;
  view.direct_begin = attr.direct_begin;
  view.direct_bytes = attr.direct_bytes;
  return view;
}

}  // namespace rocemu::memory
