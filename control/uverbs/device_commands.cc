// GET_CONTEXT, QUERY_DEVICE, QUERY_PORT: what the device is and can do. Only what the engine keeps
// is promised.
#include <rdma/ib_user_verbs.h>

#include <thread>

#include "control/uverbs/call.h"
#include "dataplane/transport/transport_limits.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control::uverbs {
namespace {

// IBV_DEVICE_* bits.
constexpr std::uint32_t kCapBadPkeyCounter = 1 << 1;
constexpr std::uint32_t kCapSrqResize = 1 << 13;
constexpr std::uint32_t kCapPortActiveEvent = 1 << 10;
constexpr std::uint32_t kCapSysImageGuid = 1 << 11;
constexpr std::uint32_t kCapRcRnrNakGen = 1 << 12;
constexpr std::uint32_t kCapMemWindow = 1 << 17;
constexpr std::uint32_t kCapMemMgtExtensions = 1 << 21;
constexpr std::uint32_t kCapMemWindowType2B = 1 << 24;
// ATOMIC WRITE is not among them: its word is stored in one piece, but nothing guarantees that to
// the application where memory is reached by copy.
constexpr std::uint64_t kCapFlushGlobal = std::uint64_t{1} << 38;

constexpr std::uint32_t kAtomicHca = 1;
constexpr std::uint32_t kVendorId = 0xff'ffff;
constexpr std::uint32_t kMaxMessage = 1u << 31;

// IBV_ODP_SUPPORT and, a transport service: send 1, receive 2, write 4, read 8, atomic 16, receive
// by SRQ 32.
constexpr std::uint64_t kOdpSupport = 1;
constexpr std::uint32_t kOdpRc = 0x3f;
constexpr std::uint32_t kOdpUc = 0x27;
constexpr std::uint32_t kOdpUd = 0x23;

// IBV_PORT_*, link layer Ethernet.
constexpr std::uint8_t kPortDown = 1;
constexpr std::uint8_t kPortActive = 4;
constexpr std::uint8_t kPhysDisabled = 3;
constexpr std::uint8_t kPhysLinkUp = 5;
constexpr std::uint8_t kLinkLayerEthernet = 2;
constexpr std::uint8_t kWidth4x = 2;
constexpr std::uint8_t kSpeedEdr = 32;
constexpr std::uint32_t kPortIpBasedGids = 1 << 26;
constexpr std::uint32_t kPortCmSupport = 1 << 16;

ib_uverbs_query_device_resp describe(const Device& device) {
  ib_uverbs_query_device_resp r{};
  std::byte guid[8];
  store_be<std::uint64_t>(guid, node_guid(device.mac));
  std::memcpy(&r.node_guid, guid, sizeof guid);
  r.sys_image_guid = r.node_guid;
  r.max_mr_size = ~std::uint64_t{0};
  r.page_size_cap = 0xffff'f000;
  r.vendor_id = kVendorId;
  r.max_qp = kMaxQps - 32;
  r.max_qp_wr = transport::kMaxQpWr - 1;
  r.device_cap_flags = kCapBadPkeyCounter | kCapPortActiveEvent | kCapSysImageGuid |
                       kCapRcRnrNakGen | kCapSrqResize | kCapMemWindow | kCapMemMgtExtensions |
                       kCapMemWindowType2B;
  r.max_sge = transport::kMaxSge;
  r.max_sge_rd = transport::kMaxSge;
  r.max_srq = kMaxSrqs;
  r.max_srq_wr = transport::kMaxSrqWr;
  r.max_srq_sge = transport::kMaxSge;
  r.max_cq = kMaxCqs;
  r.max_cqe = transport::kMaxCqe;
  r.max_mr = kMaxMrs;
  r.max_mw = kMaxMws;
  r.max_pd = kMaxPds;
  r.max_qp_rd_atom = transport::kMaxRdAtomic;
  r.max_res_rd_atom = 1u << 16;
  r.max_qp_init_rd_atom = transport::kMaxRdAtomic;
  r.atomic_cap = kAtomicHca;
  r.max_ah = kMaxAhs;
  r.max_mcast_grp = transport::kMaxMulticastGroups;
  r.max_mcast_qp_attach = transport::kMaxMulticastAttachments;
  r.max_total_mcast_qp_attach =
      transport::kMaxMulticastGroups * transport::kMaxMulticastAttachments;
  r.max_pkeys = 1;
  r.local_ca_ack_delay = 15;
  r.phys_port_cnt = 1;
  return r;
}

// Path MTU bytes to ibv_mtu.
std::uint8_t mtu_code(std::uint32_t bytes) {
  std::uint8_t code = 1;
  for (std::uint32_t mtu = transport::kMinPathMtu; mtu < bytes; mtu *= 2) ++code;
  return code;
}

}  // namespace

std::uint32_t comp_vector_count() { return std::max(1u, std::thread::hardware_concurrency()); }

int get_context(Call& call) {
  ib_uverbs_get_context_resp r{};
  r.num_comp_vectors = comp_vector_count();
  call.put(r);
  call.fd = call.context.async_pipe.take_read_end();
  if (!call.fd.is_open()) return EINVAL;  // a context is got once
  call.fd_offset = offsetof(ib_uverbs_get_context_resp, async_fd);
  return 0;
}

int query_device(Call& call) {
  call.put(describe(call.context.device));
  return 0;
}

int query_device_ex(Call& call) {
  if (call.take<ib_uverbs_ex_query_device>().comp_mask != 0) return EINVAL;
  ib_uverbs_ex_query_device_resp r{};
  r.base = describe(call.context.device);
  r.response_length = static_cast<std::uint32_t>(std::min(sizeof r, call.core_room));
  r.device_cap_flags_ex = r.base.device_cap_flags | kCapFlushGlobal;
  // Explicit: the daemon reaches pages by way of the client's page tables, at each access.
  r.odp_caps.general_caps = kOdpSupport;
  r.odp_caps.per_transport_caps.rc_odp_caps = kOdpRc;
  r.odp_caps.per_transport_caps.uc_odp_caps = kOdpUc;
  r.odp_caps.per_transport_caps.ud_odp_caps = kOdpUd;
  call.put(r);
  return 0;
}

int query_port(Call& call) {
  if (call.take<ib_uverbs_query_port>().port_num != 1) return EINVAL;
  const Device& device = call.context.device;
  ib_uverbs_query_port_resp r{};
  r.port_cap_flags = kPortCmSupport | kPortIpBasedGids;
  r.max_msg_sz = kMaxMessage;
  r.gid_tbl_len = kGidTableLength;
  r.pkey_tbl_len = 1;
  r.state = device.is_link_up ? kPortActive : kPortDown;
  r.max_mtu = mtu_code(transport::kMaxPathMtu);
  r.active_mtu = mtu_code(device.max_path_mtu_bytes());
  r.max_vl_num = 1;
  r.active_width = kWidth4x;
  r.active_speed = kSpeedEdr;
  r.phys_state = device.is_link_up ? kPhysLinkUp : kPhysDisabled;
  r.link_layer = kLinkLayerEthernet;
  call.put(r);
  return 0;
}

}  // namespace rocemu::control::uverbs
