// Address handles and multicast groups: where the datagrams of UD queue pairs go to and come from.
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <algorithm>

#include "control/uverbs/call.h"

namespace rocemu::control::uverbs {
namespace {

ib_uverbs_qp_dest dest_of(const ib_uverbs_ah_attr& attr) {
  ib_uverbs_qp_dest dest{};
  std::copy(std::begin(attr.grh.dgid), std::end(attr.grh.dgid), std::begin(dest.dgid));
  dest.flow_label = attr.grh.flow_label;
  dest.sgid_index = attr.grh.sgid_index;
  dest.hop_limit = attr.grh.hop_limit;
  dest.traffic_class = attr.grh.traffic_class;
  dest.dlid = attr.dlid;
  dest.sl = attr.sl;
  dest.src_path_bits = attr.src_path_bits;
  dest.static_rate = attr.static_rate;
  dest.is_global = attr.is_global;
  dest.port_num = attr.port_num;
  return dest;
}

struct Membership {
  QueuePair* qp = nullptr;
  MulticastGroup group;
};

// ATTACH_MCAST and DETACH_MCAST carry the same. EINVAL.
Result<Membership> membership_of(Call& call) {
  static_assert(sizeof(ib_uverbs_attach_mcast) == sizeof(ib_uverbs_detach_mcast));
  const auto in = call.take<ib_uverbs_attach_mcast>();
  Membership out;
  out.qp = call.context.qps.find(in.qp_handle);
  if (out.qp == nullptr) return Error{EINVAL, "no such queue pair"};
  std::copy(std::begin(in.gid), std::end(in.gid), out.group.gid.begin());
  out.group.lid = in.mlid;
  return out;
}

}  // namespace

int create_ah(Call& call) {
  const auto in = call.take<ib_uverbs_create_ah>();
  VerbsContext& context = call.context;
  Device& device = context.device;
  ProtectionDomain* pd = context.pds.find(in.pd_handle);
  const auto handle = context.ahs.next_handle();
  if (pd == nullptr) return EINVAL;
  if (!handle || device.ah_count == kMaxAhs) return ENOMEM;
  transport::AddressVector av;
  // Without a flow label the source port is the lowest one: the destination QP is not known here.
  const int error = find_path(call, dest_of(in.attr), {QpNum{0}, QpNum{0}}, av);
  if (error != 0) return error;
  const auto number = device.worker.run([&] {
    return device.worker.engine(device.index)
        .create_address_handle({context.identity.id, pd->id, av.headers});
  });
  if (!number) return number.error().code;
  context.ahs.add({in.pd_handle, number.value()});
  ++pd->users;
  ++device.ah_count;
  ib_uverbs_create_ah_resp r{};
  r.ah_handle = *handle;
  call.put(r);
  call.put_driver(rxe_create_ah_resp{number.value(), 0}, false);
  return 0;
}

int destroy_ah(Call& call) {
  const std::uint32_t handle = call.take<ib_uverbs_destroy_ah>().ah_handle;
  AddressHandle* ah = call.context.ahs.find(handle);
  if (ah == nullptr) return EINVAL;
  call.context.destroy_ah(handle, *ah);
  return 0;
}

int attach_mcast(Call& call) {
  const auto asked = membership_of(call);
  if (!asked) return asked.error().code;
  const auto [qp, group] = asked.value();
  if (std::ranges::find(qp->groups, group) != qp->groups.end()) return 0;
  Device& device = call.context.device;
  const auto done = device.worker.run(
      [&] { return device.worker.engine(device.index).attach_multicast(qp->number, group.gid); });
  if (!done) return done.error().code;
  qp->groups.push_back(group);
  return 0;
}

int detach_mcast(Call& call) {
  const auto asked = membership_of(call);
  if (!asked) return asked.error().code;
  const auto [qp, group] = asked.value();
  if (std::erase(qp->groups, group) == 0) return EINVAL;
  // The LID means nothing on Ethernet: the same group under another one keeps the QP attached.
  const bool stays = std::ranges::any_of(
      qp->groups, [&](const MulticastGroup& other) { return other.gid == group.gid; });
  if (stays) return 0;
  Device& device = call.context.device;
  const auto done = device.worker.run(
      [&] { return device.worker.engine(device.index).detach_multicast(qp->number, group.gid); });
  return done ? 0 : done.error().code;
}

}  // namespace rocemu::control::uverbs
