// PDs, memory regions, memory windows.
#include <rdma/ib_user_verbs.h>

#include <array>
#include <optional>

#include "control/uverbs/call.h"
#include "rocemu/abi/commands.h"

namespace rocemu::control::uverbs {
namespace {

// Not FLUSH_PERSISTENT: applications' memory does not outlast them.
constexpr std::uint32_t kSupportedAccess = memory::kAccessLocalWrite | memory::kAccessRemoteWrite |
                                           memory::kAccessRemoteRead | memory::kAccessRemoteAtomic |
                                           memory::kAccessMwBind | memory::kAccessZeroBased |
                                           memory::kAccessOnDemand | memory::kAccessHugetlb |
                                           memory::kAccessFlushGlobal | memory::kAccessOptional;
constexpr std::uint64_t kPageMask = 0xfff;

bool needs_write(std::uint32_t access) {
  return (access & (memory::kAccessLocalWrite | memory::kAccessRemoteWrite |
                    memory::kAccessRemoteAtomic)) != 0;
}

// The client's bytes of a region, and what a REG_MR or REREG_MR says of it.
struct Range {
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  std::uint64_t hca_va = 0;
};

// On demand, pages need not be there yet, and may come and go: those that are must have the rights.
int probe_on_demand(const VerbsContext& context, const Range& range, memory::RangeAccess access) {
  for (const memory::Mapping& mapping :
       context.spaces.mappings(context.space, range.start, range.length)) {
    const bool is_allowed =
        access == memory::RangeAccess::kReadWrite ? mapping.is_writable : mapping.is_readable;
    if (!is_allowed) return EFAULT;
  }
  return 0;
}

// Looks at the client's memory and says what the region is made of. 0 or an errno.
int describe(const VerbsContext& context, const Range& range, PdId pd, std::uint32_t access,
             std::optional<memory::SharedMapping>& mapping, memory::MrAttr& attr) {
  if ((access & ~kSupportedAccess) != 0) return EOPNOTSUPP;
  // The offset within a page is the same at both addresses, as for a device with a page table.
  if (((range.start ^ range.hca_va) & kPageMask) != 0 || range.length == 0) return EINVAL;
  if (range.start + range.length < range.start) return EINVAL;
  // All of the address space at once: implicit ODP, which is not offered.
  if (range.start == 0 && range.length == ~std::uint64_t{0}) return EINVAL;
  const auto rights =
      needs_write(access) ? memory::RangeAccess::kReadWrite : memory::RangeAccess::kRead;
  mapping.reset();
  attr = {};
  if ((access & memory::kAccessOnDemand) != 0) {
    if (const int error = probe_on_demand(context, range, rights); error != 0) return error;
  } else {
    const auto probed =
        context.spaces.probe_range(context.space, range.start, range.length, rights);
    if (!probed) return probed.error().code;
    mapping = memory::SharedMapping::map(context.spaces, context.space, range.start, range.length,
                                         rights);
  }
  attr.pd = pd;
  attr.space = context.space;
  attr.iova = (access & memory::kAccessZeroBased) != 0 ? 0 : range.hca_va;
  attr.client_va = range.start;
  attr.length = range.length;
  attr.access = access;
  if (mapping) {
    attr.direct_base = mapping->data();
    attr.direct_bytes = range.length;
  }
  return 0;
}

}  // namespace

int alloc_pd(Call& call) {
  Device& device = call.context.device;
  const auto handle = call.context.pds.next_handle();
  if (!handle || device.pd_count == kMaxPds) return ENOMEM;
  call.context.pds.add({PdId{device.next_pd++}, 0});
  ++device.pd_count;
  ib_uverbs_alloc_pd_resp r{};
  r.pd_handle = *handle;
  call.put(r);
  return 0;
}

int dealloc_pd(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_dealloc_pd>().pd_handle;
  const ProtectionDomain* pd = call.context.pds.find(handle);
  if (pd == nullptr) return EINVAL;
  if (pd->users != 0) return EBUSY;
  call.context.destroy_pd(handle);
  return 0;
}

int reg_mr(Call& call) {
  const auto in = call.take<ib_uverbs_reg_mr>();
  VerbsContext& context = call.context;
  ProtectionDomain* pd = context.pds.find(in.pd_handle);
  const auto handle = context.mrs.next_handle();
  if (pd == nullptr) return EINVAL;
  Device& device = context.device;
  if (!handle || device.regions.in_use() - device.mw_count >= kMaxMrs) return ENOMEM;
  MemoryRegion mr;
  memory::MrAttr attr;
  if (const int error = describe(context, {in.start, in.length, in.hca_va}, pd->id, in.access_flags,
                                 mr.mapping, attr);
      error != 0) {
    return error;
  }
  const auto keys = device.regions.add(attr);
  if (!keys) return keys.error().code;
  mr.pd = in.pd_handle;
  mr.keys = keys.value();
  context.mrs.add(std::move(mr));
  ++pd->users;
  ib_uverbs_reg_mr_resp r{};
  r.mr_handle = *handle;
  r.lkey = keys.value().lkey;
  r.rkey = keys.value().rkey;
  call.put(r);
  return 0;
}

int rereg_mr(Call& call) {
  constexpr std::uint32_t kTranslation = 1, kPd = 2, kAccess = 4;  // IBV_REREG_MR_CHANGE_*
  const auto in = call.take<ib_uverbs_rereg_mr>();
  VerbsContext& context = call.context;
  if (in.flags == 0) return EINVAL;
  if ((in.flags & ~(kTranslation | kPd | kAccess)) != 0) return EOPNOTSUPP;
  MemoryRegion* mr = context.mrs.find(in.mr_handle);
  if (mr == nullptr) return EINVAL;
  const std::uint32_t pd_handle = (in.flags & kPd) != 0 ? in.pd_handle : mr->pd;
  ProtectionDomain* pd = context.pds.find(pd_handle);
  if (pd == nullptr) return EINVAL;
  Device& device = context.device;
  const memory::MrAttr& old = device.regions.attr(mr->keys.index);
  const std::uint32_t access = (in.flags & kAccess) != 0 ? in.access_flags : old.access;
  // A zero-based region keeps no other address than that of its bytes.
  Range range{old.client_va, old.length,
              (old.access & memory::kAccessZeroBased) != 0 ? old.client_va : old.iova};
  if ((in.flags & kTranslation) != 0) range = {in.start, in.length, in.hca_va};
  std::optional<memory::SharedMapping> mapping;
  memory::MrAttr attr;
  if (const int error = describe(context, range, pd->id, access, mapping, attr); error != 0) {
    return error;
  }
  // Between two turns: every packet finds the old region or the new one.
  const auto replaced =
      device.worker.run([&] { return device.regions.replace(mr->keys.index, attr); });
  if (!replaced) return replaced.error().code;
  mr->mapping = std::move(mapping);
  --context.pds.find(mr->pd)->users;
  ++pd->users;
  mr->pd = pd_handle;
  ib_uverbs_rereg_mr_resp r{};
  r.lkey = mr->keys.lkey;
  r.rkey = mr->keys.rkey;
  call.put(r);
  return 0;
}

int advise_mr(Call& call) {
  constexpr std::uint32_t kPrefetchWrite = 1;  // IBV_ADVISE_MR_ADVICE_*
  constexpr std::uint32_t kLastAdvice = 2;
  const auto in = call.take<abi::AdviseMr>();
  VerbsContext& context = call.context;
  const ProtectionDomain* pd = context.pds.find(in.pd_handle);
  if (pd == nullptr || in.range_count > abi::kMaxAdvisedRanges) return EINVAL;
  if (in.advice > kLastAdvice) return EOPNOTSUPP;
  const std::uint32_t access = in.advice == kPrefetchWrite ? memory::kAccessLocalWrite : 0u;
  std::array<std::uint64_t, abi::kMaxAdvisedRanges> addresses{};
  for (std::uint32_t i = 0; i < in.range_count; ++i) {
    const auto& range = in.ranges[i];
    const memory::MrTable& regions = context.device.regions;
    const memory::MrView view =
        regions.lookup(range.lkey, pd->id, range.address, range.length, access);
    if (view.fault == memory::MrFault::kNoRight || view.fault == memory::MrFault::kWrongPd) {
      return EPERM;
    }
    if (view.fault != memory::MrFault::kNone ||
        (regions.attr(view.index).access & memory::kAccessOnDemand) == 0) {
      return EINVAL;
    }
    addresses[i] = view.client_va;
  }
  call.put(addresses);
  return 0;
}

int dereg_mr(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_dereg_mr>().mr_handle;
  MemoryRegion* mr = call.context.mrs.find(handle);
  if (mr == nullptr) return EINVAL;
  return call.context.destroy_mr(handle, *mr);
}

int alloc_mw(Call& call) {
  const auto in = call.take<ib_uverbs_alloc_mw>();
  VerbsContext& context = call.context;
  Device& device = context.device;
  ProtectionDomain* pd = context.pds.find(in.pd_handle);
  const auto handle = context.mws.next_handle();
  const auto type = static_cast<memory::WindowType>(in.mw_type);
  if (pd == nullptr) return EINVAL;
  if (type != memory::WindowType::kType1 && type != memory::WindowType::kType2) return EINVAL;
  if (!handle || device.mw_count == kMaxMws) return ENOMEM;
  const auto keys = device.regions.add_window(pd->id, type);
  if (!keys) return keys.error().code;
  context.mws.add({keys.value().index, in.pd_handle});
  ++pd->users;
  ++device.mw_count;
  ib_uverbs_alloc_mw_resp r{};
  r.mw_handle = *handle;
  r.rkey = keys.value().rkey;
  call.put(r);
  return 0;
}

int dealloc_mw(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_dealloc_mw>().mw_handle;
  const MemoryWindow* mw = call.context.mws.find(handle);
  if (mw == nullptr) return EINVAL;
  call.context.destroy_mw(handle, *mw);
  return 0;
}

}  // namespace rocemu::control::uverbs
