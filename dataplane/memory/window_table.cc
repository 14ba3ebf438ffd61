// Memory windows: allocation, binding, invalidation, and lookups of keys that came over the wire.
#include <cerrno>

#include "dataplane/memory/mr_table_impl.h"

namespace rocemu::memory {
namespace {

constexpr std::uint32_t kKeyPart = 0xff;  // the part of a window's rkey that changes with a bind

// What a window may allow (11.4.1.1). Local rights are the region's; LOCAL_WRITE and the optional
// flags are taken without a meaning, as rxe does.
constexpr std::uint32_t kWindowAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                        kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                        kAccessOnDemand | kAccessFlushGlobal |
                                        kAccessFlushPersistent | kAccessOptional;

bool is_inside(const MrAttr& region, std::uint64_t va, std::uint64_t length) {
  return va >= region.iova && length <= region.length && va - region.iova <= region.length - length;
}

// Of the region that a window is to be bound to.
bool may_bind(const MrAttr& region, const WindowBind& request) {
  if ((region.access & kAccessMwBind) == 0) return false;     // C10-73
  if ((region.access & kAccessZeroBased) != 0) return false;  // o10-36.2.4
  const bool writes = (request.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  if (writes && (region.access & kAccessLocalWrite) == 0) return false;  // C10-74
  return is_inside(region, request.va, request.length);                  // C10-75
}

}  // namespace

Result<MrKeys> MrTable::add_window(PdId pd, WindowType type) {
  const auto slot = impl_->take_slot();
  if (!slot) return Error{ENOMEM, "the device has no memory window left"};
  Entry& entry = impl_->entries.get()[*slot];
  entry.kind = type == WindowType::kType1 ? EntryKind::kWindow1 : EntryKind::kWindow2;
  entry.attr = {};
  entry.attr.pd = pd;
  entry.is_bound = false;
  entry.qp = QpNum::none();
  const std::uint32_t key = impl_->make_key(*slot);
  entry.publish(key);
  return MrKeys{MrIndex{*slot}, 0, key};
}

bool MrTable::bind(const WindowBind& request, const KeyUser& user) {
  Entry* window = impl_->find(request.window_rkey);
  if (window == nullptr || window->kind == EntryKind::kRegion) return false;
  if (window->attr.pd != user.pd || (request.access & ~kWindowAccess) != 0) return false;  // C10-72
  const bool is_type2 = window->kind == EntryKind::kWindow2;
  if (is_type2) {
    // Bound already, or bound to nothing (o10-37.2.30, o10-37.2.40).
    if (window->is_bound || request.length == 0) return false;
  } else if ((request.access & kAccessZeroBased) != 0) {
    return false;  // o10-36.2.2
  }
  const Entry* region = request.length == 0 ? nullptr : impl_->find(request.region_lkey);
  if (request.length != 0) {
    if (region == nullptr || region->kind != EntryKind::kRegion) return false;
    if (region->attr.pd != user.pd || !may_bind(region->attr, request)) return false;
  }
  impl_->unbind(*window);
  if (region != nullptr) {
    window->region = static_cast<std::uint32_t>(region - impl_->entries.get());
    ++impl_->entries.get()[window->region].bound_windows;
    window->is_bound = true;
    window->attr.iova = request.va;
    window->attr.length = request.length;
    window->attr.access = request.access;
    if (is_type2) window->qp = user.qp;
  }
  window->publish((request.window_rkey & ~kKeyPart) | (request.new_rkey & kKeyPart));
  return true;
}

bool MrTable::invalidate(std::uint32_t rkey, const KeyUser& user) {
  Entry* window = impl_->find(rkey);
  if (window == nullptr || window->kind != EntryKind::kWindow2 || !window->is_bound) return false;
  if (window->attr.pd != user.pd || window->qp != user.qp) return false;
  impl_->unbind(*window);
  return true;
}

MrView MrTable::lookup_remote(std::uint32_t rkey, const KeyUser& user, std::uint64_t iova,
                              std::uint64_t length, std::uint32_t access) const {
  const Entry* entry = impl_->find(rkey);
  if (entry == nullptr) return {};
  if (entry->kind == EntryKind::kRegion) {
    return impl_->view_of(*entry, user.pd, iova, length, access);
  }
  MrView view;
  if (!entry->is_bound) return view;
  if (entry->kind == EntryKind::kWindow2 && entry->qp != user.qp) {
    view.fault = MrFault::kWrongPd;
    return view;
  }
  // A zero-based window counts from its own beginning (10.6.7.2.3).
  const MrAttr& attr = entry->attr;
  const bool is_zero_based = (attr.access & kAccessZeroBased) != 0;
  if (is_zero_based && length != 0 && iova >= attr.length) {
    view.fault = MrFault::kOutOfRange;
    return view;
  }
  const std::uint64_t at = is_zero_based ? attr.iova + iova : iova;
  view.fault = Impl::fault_of(attr, user.pd, at, length, access);
  if (view.fault != MrFault::kNone) return view;
  // The window's rights stand in for the region's.
  return impl_->view_of(impl_->entries.get()[entry->region], user.pd, at, length, 0);
}

}  // namespace rocemu::memory
