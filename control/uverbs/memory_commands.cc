// PDs, memory regions, address handles.
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "control/uverbs/call.h"

namespace rocemu::control::uverbs {
namespace {

constexpr std::uint32_t kSupportedAccess = memory::kAccessLocalWrite | memory::kAccessRemoteWrite |
                                           memory::kAccessRemoteRead | memory::kAccessRemoteAtomic |
                                           memory::kAccessRelaxedOrdering;
// Optional access flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE).
constexpr std::uint32_t kOptionalAccess = 0x3ff0'0000;

bool needs_write(std::uint32_t access) {
  return (access & (memory::kAccessLocalWrite | memory::kAccessRemoteWrite |
                    memory::kAccessRemoteAtomic)) != 0;
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
  if (!handle) return ENOMEM;
  if ((in.access_flags & ~(kSupportedAccess | kOptionalAccess)) != 0) return EOPNOTSUPP;
  // The offset within a page is the same at both addresses, as for a device with a page table.
  if (((in.start ^ in.hca_va) & 0xfff) != 0 || in.length == 0) return EINVAL;
  const auto access =
      needs_write(in.access_flags) ? memory::RangeAccess::kReadWrite : memory::RangeAccess::kRead;
  const auto probed = context.spaces.probe_range(context.space, in.start, in.length, access);
  if (!probed) return probed.error().code;
  MemoryRegion mr;
  mr.pd = in.pd_handle;
  mr.mapping =
      memory::SharedMapping::map(context.spaces, context.space, in.start, in.length, access);
  memory::MrAttr attr;
  attr.pd = pd->id;
  attr.space = context.space;
  attr.iova = in.hca_va;
  attr.client_va = in.start;
  attr.length = in.length;
  attr.access = in.access_flags;
  if (mr.mapping) {
    attr.direct_base = mr.mapping->data();
    attr.direct_bytes = in.length;
  }
  const auto keys = context.device.regions.add(attr);
  if (!keys) return keys.error().code;
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

int dereg_mr(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_dereg_mr>().mr_handle;
  MemoryRegion* mr = call.context.mrs.find(handle);
  if (mr == nullptr) return EINVAL;
  call.context.destroy_mr(handle, *mr);
  return 0;
}

int create_ah(Call& call) {
  const auto in = call.take<ib_uverbs_create_ah>();
  VerbsContext& context = call.context;
  ProtectionDomain* pd = context.pds.find(in.pd_handle);
  const auto handle = context.ahs.next_handle();
  if (pd == nullptr || in.attr.port_num != 1 || in.attr.is_global == 0 ||
      context.device.find_gid(in.attr.grh.sgid_index) == nullptr) {
    return EINVAL;
  }
  if (!handle || context.device.ah_count == kMaxAhs) return ENOMEM;
  context.ahs.add({in.pd_handle});
  ++pd->users;
  ++context.device.ah_count;
  ib_uverbs_create_ah_resp r{};
  r.ah_handle = *handle;
  call.put(r);
  call.put_driver(rxe_create_ah_resp{*handle + 1, 0}, false);
  return 0;
}

int destroy_ah(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_destroy_ah>().ah_handle;
  AddressHandle* ah = call.context.ahs.find(handle);
  if (ah == nullptr) return EINVAL;
  call.context.destroy_ah(handle, *ah);
  return 0;
}

}  // namespace rocemu::control::uverbs
