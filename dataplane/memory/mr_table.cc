// The table of regions. The control thread writes an entry only while its state says invalid and no
// shard can be reading it; the release store of the state publishes it, and a shard's acquire load
// pairs with that. Windows: window_table.cc.
#include "dataplane/memory/mr_table.h"

#include <cerrno>

#include "dataplane/memory/mr_table_impl.h"
#include "rocemu/base/check.h"

namespace rocemu::memory {
namespace {

bool wraps(std::uint64_t begin, std::uint64_t length) { return begin + length < begin; }

bool is_access_legal(std::uint32_t access) {
  // Remote write, atomic and the binding of windows need local write (11.2.8.2, and the kernel's
  // ib_check_mr_access for the last).
  constexpr std::uint32_t kNeedsLocal = kAccessRemoteWrite | kAccessRemoteAtomic | kAccessMwBind;
  return (access & kNeedsLocal) == 0 || (access & kAccessLocalWrite) != 0;
}

// EINVAL, or nothing.
std::optional<Error> check(const MrAttr& attr) {
  if (wraps(attr.iova, attr.length) || wraps(attr.client_va, attr.length)) {
    return Error{EINVAL, "the memory region wraps around the address space"};
  }
  if (!is_access_legal(attr.access)) {
    return Error{EINVAL, "remote write, atomic and window access need local write access"};
  }
  return std::nullopt;
}

}  // namespace

MrTable::MrTable(std::uint32_t capacity, Prng secret) {
  ROCEMU_CHECK(capacity <= kSlotMask + 1);
  impl_ = std::make_unique<Impl>(capacity, secret);
}

MrTable::~MrTable() = default;

Result<MrKeys> MrTable::add(const MrAttr& attr) {
  if (auto error = check(attr)) return std::move(*error);
  const auto slot = impl_->take_slot();
  if (!slot) return Error{ENOMEM, "the device has no memory region left"};
  Entry& entry = impl_->entries.get()[*slot];
  entry.kind = EntryKind::kRegion;
  entry.attr = attr;
  entry.bound_windows = 0;
  const std::uint32_t key = impl_->make_key(*slot);
  entry.publish(key);
  return MrKeys{MrIndex{*slot}, key, key};
}

Result<void> MrTable::replace(MrIndex index, const MrAttr& attr) {
  Entry* entry = impl_->find(index, EntryKind::kRegion);
  if (entry == nullptr) return Error{EINVAL, "no such memory region"};
  if (entry->bound_windows != 0) return Error{EBUSY, "memory windows are bound to the region"};
  if (auto error = check(attr)) return std::move(*error);
  entry->attr = attr;
  return {};
}

Result<void> MrTable::retire(MrIndex index) {
  if (index.value >= impl_->untouched) return Error{EINVAL, "no such memory region"};
  Entry& entry = impl_->entries.get()[index.value];
  if (!entry.is_valid()) return Error{EINVAL, "no such memory region"};
  if (entry.kind == EntryKind::kRegion && entry.bound_windows != 0) {
    return Error{EINVAL, "memory windows are bound to the region"};
  }
  if (entry.kind != EntryKind::kRegion) impl_->unbind(entry);
  entry.withdraw();
  return {};
}

void MrTable::release(MrIndex index) {
  ROCEMU_CHECK(index.value < impl_->untouched);
  ROCEMU_CHECK(!impl_->entries.get()[index.value].is_valid());
  impl_->freed.push_back(index.value);
  --impl_->in_use;
}

const MrAttr& MrTable::attr(MrIndex index) const {
  ROCEMU_CHECK(index.value < impl_->untouched);
  return impl_->entries.get()[index.value].attr;
}

std::uint32_t MrTable::rkey(MrIndex index) const {
  ROCEMU_CHECK(index.value < impl_->untouched);
  return impl_->entries.get()[index.value].key();
}

bool MrTable::has_windows(MrIndex index) const {
  ROCEMU_CHECK(index.value < impl_->untouched);
  return impl_->entries.get()[index.value].bound_windows != 0;
}

std::uint32_t MrTable::in_use() const { return impl_->in_use; }

MrView MrTable::lookup(std::uint32_t key, PdId pd, std::uint64_t iova, std::uint64_t length,
                       std::uint32_t access) const {
  const Entry* entry = impl_->find(key);
  if (entry == nullptr || entry->kind != EntryKind::kRegion) return {};
  return impl_->view_of(*entry, pd, iova, length, access);
}

}  // namespace rocemu::memory
