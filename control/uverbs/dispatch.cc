#include "control/uverbs/dispatch.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>

#include "rocemu/abi/commands.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control::uverbs {
namespace {

constexpr std::uint32_t kExtendedFlag = 0x8000'0000;
constexpr std::uint32_t kCommandMask = 0xff;
constexpr std::size_t kMaxResponseBytes = 4096;

enum class Framing : std::uint8_t { kPlain, kExtended };

struct Row {
  std::uint32_t command;
  Framing framing;
  std::size_t min_in;   ///< Bytes after the headers.
  std::size_t min_out;  ///< Room for the response.
  int (*handler)(Call&);
};

// Sizes without the flexible driver data at the end.
constexpr std::array kRows = {
    Row{IB_USER_VERBS_CMD_GET_CONTEXT, Framing::kPlain, sizeof(ib_uverbs_get_context),
        sizeof(ib_uverbs_get_context_resp), get_context},
    Row{IB_USER_VERBS_CMD_QUERY_DEVICE, Framing::kPlain, sizeof(ib_uverbs_query_device),
        sizeof(ib_uverbs_query_device_resp), query_device},
    Row{IB_USER_VERBS_CMD_QUERY_DEVICE, Framing::kExtended, sizeof(ib_uverbs_ex_query_device),
        sizeof(ib_uverbs_query_device_resp) + 8, query_device_ex},
    Row{IB_USER_VERBS_CMD_QUERY_PORT, Framing::kPlain, sizeof(ib_uverbs_query_port),
        sizeof(ib_uverbs_query_port_resp), query_port},
    Row{IB_USER_VERBS_CMD_ALLOC_PD, Framing::kPlain, sizeof(ib_uverbs_alloc_pd),
        sizeof(ib_uverbs_alloc_pd_resp), alloc_pd},
    Row{IB_USER_VERBS_CMD_DEALLOC_PD, Framing::kPlain, sizeof(ib_uverbs_dealloc_pd), 0, dealloc_pd},
    Row{IB_USER_VERBS_CMD_CREATE_AH, Framing::kPlain, sizeof(ib_uverbs_create_ah),
        sizeof(ib_uverbs_create_ah_resp), create_ah},
    Row{IB_USER_VERBS_CMD_DESTROY_AH, Framing::kPlain, sizeof(ib_uverbs_destroy_ah), 0, destroy_ah},
    Row{IB_USER_VERBS_CMD_ATTACH_MCAST, Framing::kPlain, sizeof(ib_uverbs_attach_mcast), 0,
        attach_mcast},
    Row{IB_USER_VERBS_CMD_DETACH_MCAST, Framing::kPlain, sizeof(ib_uverbs_detach_mcast), 0,
        detach_mcast},
    Row{IB_USER_VERBS_CMD_REG_MR, Framing::kPlain, sizeof(ib_uverbs_reg_mr),
        sizeof(ib_uverbs_reg_mr_resp), reg_mr},
    Row{IB_USER_VERBS_CMD_REREG_MR, Framing::kPlain, sizeof(ib_uverbs_rereg_mr),
        sizeof(ib_uverbs_rereg_mr_resp), rereg_mr},
    Row{abi::kCommandAdviseMr, Framing::kPlain, sizeof(abi::AdviseMr),
        sizeof(std::uint64_t) * abi::kMaxAdvisedRanges, advise_mr},
    Row{IB_USER_VERBS_CMD_ALLOC_MW, Framing::kPlain, sizeof(ib_uverbs_alloc_mw),
        sizeof(ib_uverbs_alloc_mw_resp), alloc_mw},
    Row{IB_USER_VERBS_CMD_DEALLOC_MW, Framing::kPlain, sizeof(ib_uverbs_dealloc_mw), 0, dealloc_mw},
    Row{IB_USER_VERBS_CMD_DEREG_MR, Framing::kPlain, sizeof(ib_uverbs_dereg_mr), 0, dereg_mr},
    Row{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, Framing::kPlain,
        sizeof(ib_uverbs_create_comp_channel), sizeof(ib_uverbs_create_comp_channel_resp),
        create_comp_channel},
    Row{IB_USER_VERBS_CMD_CREATE_CQ, Framing::kPlain, sizeof(ib_uverbs_create_cq),
        sizeof(ib_uverbs_create_cq_resp), create_cq},
    Row{IB_USER_VERBS_CMD_CREATE_CQ, Framing::kExtended, sizeof(ib_uverbs_ex_create_cq),
        sizeof(ib_uverbs_ex_create_cq_resp), create_cq_ex},
    Row{IB_USER_VERBS_CMD_RESIZE_CQ, Framing::kPlain, sizeof(ib_uverbs_resize_cq),
        sizeof(ib_uverbs_resize_cq_resp), resize_cq},
    Row{IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, Framing::kPlain, sizeof(ib_uverbs_req_notify_cq), 0,
        req_notify_cq},
    Row{IB_USER_VERBS_CMD_DESTROY_CQ, Framing::kPlain, sizeof(ib_uverbs_destroy_cq),
        sizeof(ib_uverbs_destroy_cq_resp), destroy_cq},
    Row{IB_USER_VERBS_CMD_CREATE_QP, Framing::kPlain, sizeof(ib_uverbs_create_qp),
        sizeof(ib_uverbs_create_qp_resp), create_qp},
    Row{IB_USER_VERBS_CMD_CREATE_QP, Framing::kExtended, sizeof(ib_uverbs_ex_create_qp),
        sizeof(ib_uverbs_ex_create_qp_resp), create_qp_ex},
    Row{IB_USER_VERBS_CMD_QUERY_QP, Framing::kPlain, sizeof(ib_uverbs_query_qp),
        sizeof(ib_uverbs_query_qp_resp), query_qp},
    Row{IB_USER_VERBS_CMD_MODIFY_QP, Framing::kPlain, sizeof(ib_uverbs_modify_qp), 0, modify_qp},
    Row{IB_USER_VERBS_CMD_MODIFY_QP, Framing::kExtended, sizeof(ib_uverbs_modify_qp), 0,
        modify_qp_ex},
    Row{abi::kCommandDropCompletions, Framing::kPlain, sizeof(abi::DropCompletions), 0,
        drop_completions},
    Row{IB_USER_VERBS_CMD_DESTROY_QP, Framing::kPlain, sizeof(ib_uverbs_destroy_qp),
        sizeof(ib_uverbs_destroy_qp_resp), destroy_qp},
    Row{IB_USER_VERBS_CMD_CREATE_SRQ, Framing::kPlain, sizeof(ib_uverbs_create_srq),
        sizeof(ib_uverbs_create_srq_resp), create_srq},
    Row{IB_USER_VERBS_CMD_MODIFY_SRQ, Framing::kPlain, sizeof(ib_uverbs_modify_srq), 0, modify_srq},
    Row{IB_USER_VERBS_CMD_QUERY_SRQ, Framing::kPlain, sizeof(ib_uverbs_query_srq),
        sizeof(ib_uverbs_query_srq_resp), query_srq},
    Row{IB_USER_VERBS_CMD_DESTROY_SRQ, Framing::kPlain, sizeof(ib_uverbs_destroy_srq),
        sizeof(ib_uverbs_destroy_srq_resp), destroy_srq},
    Row{IB_USER_VERBS_CMD_POST_SEND, Framing::kPlain, sizeof(ib_uverbs_post_send), 0, post_send},
};

struct Sizes {
  std::size_t core_in = 0;
  std::size_t driver_in = 0;
  std::size_t core_room = 0;
  std::size_t driver_room = 0;
  std::size_t header = 0;
};

// What the headers claim; false when it contradicts the bytes received.
bool read_sizes(std::span<const std::byte> command, Framing framing, Sizes& out) {
  const auto header = load<ib_uverbs_cmd_hdr>(command.data());
  if (framing == Framing::kPlain) {
    out.header = sizeof header;
    out.core_in = command.size() - sizeof header;
    out.core_room = std::size_t{header.out_words} * 4;
    return std::size_t{header.in_words} * 4 == command.size();
  }
  out.header = sizeof header + sizeof(ib_uverbs_ex_cmd_hdr);
  if (command.size() < out.header) return false;
  const auto extended = load<ib_uverbs_ex_cmd_hdr>(command.data() + sizeof header);
  out.core_in = std::size_t{header.in_words} * 8;
  out.driver_in = std::size_t{extended.provider_in_words} * 8;
  out.core_room = std::size_t{header.out_words} * 8;
  out.driver_room = std::size_t{extended.provider_out_words} * 8;
  return extended.cmd_hdr_reserved == 0 &&
         out.core_in + out.driver_in == command.size() - out.header;
}

Outcome refused(int error) {
  Outcome out;
  out.error = error;
  return out;
}

}  // namespace

Outcome execute(VerbsContext& context, std::span<const std::byte> command, bool is_last_try) {
  Outcome out;
  if (command.size() < sizeof(ib_uverbs_cmd_hdr)) return refused(EINVAL);
  const auto word = load<ib_uverbs_cmd_hdr>(command.data()).command;
  const Framing framing = (word & kExtendedFlag) != 0 ? Framing::kExtended : Framing::kPlain;
  const auto row = std::ranges::find_if(kRows, [&](const Row& r) {
    return r.command == (word & kCommandMask) && r.framing == framing;
  });
  if ((word & ~(kExtendedFlag | kCommandMask)) != 0) return refused(EINVAL);
  if (row == kRows.end()) return refused(EOPNOTSUPP);
  Sizes sizes;
  if (!read_sizes(command, framing, sizes)) return refused(EINVAL);
  if (sizes.core_in < row->min_in) return refused(EINVAL);
  if (sizes.core_room < row->min_out) return refused(ENOSPC);

  const auto body = command.subspan(sizes.header);
  Call call{.context = context,
            .is_last_try = is_last_try,
            .core = body.first(sizes.core_in),
            .driver = body.subspan(sizes.core_in, sizes.driver_in),
            .core_room = std::min(sizes.core_room, kMaxResponseBytes),
            .driver_room = std::min(sizes.driver_room, kMaxResponseBytes),
            .response = {},
            .patches = {},
            .fd = {},
            .fd_offset = abi::kNoFd,
            .channel_handle = 0,
            .awaited = {}};
  out.error = row->handler(call);
  out.awaited = call.awaited;
  if (out.error != 0) return out;
  out.response = std::move(call.response);
  out.patches = std::move(call.patches);
  out.fd = std::move(call.fd);
  out.fd_offset = call.fd_offset;
  out.channel_handle = call.channel_handle;
  out.written = command.size();
  return out;
}

}  // namespace rocemu::control::uverbs
