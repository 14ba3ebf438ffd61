// ibv_rereg_mr and ibv_advise_mr on emulated devices: the daemon knows both, the librxe provider
// does neither. Each is one command to the daemon. rereg_mr is a function of libibverbs and is
// interposed; advise_mr is a public op of the extended context and is replaced there. Limits and
// return values are those of libibverbs. What ibv_fork_init asks of a range (MADV_DONTFORK) stays
// with the range that was registered first.
#include "verbs_shim/overlay_mr.h"

#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "rocemu/abi/commands.h"
#include "verbs_shim/export.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/overlay_command.h"
#include "verbs_shim/overlay_library.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace rocemu::shim {
namespace {

constexpr int kReregFlags = IBV_REREG_MR_FLAGS_SUPPORTED;

int reregister(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool is_legal = (flags & ~kReregFlags) == 0 &&
                        (!moves || (length != 0 && address != nullptr)) &&
                        (access == 0 || (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) &&
                        ((flags & IBV_REREG_MR_CHANGE_PD) == 0 || pd != nullptr);
  if (!is_legal) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  struct Reply {
    std::uint32_t lkey;
    std::uint32_t rkey;
  } reply{};
  struct Request {
    std::uint64_t response;
    std::uint32_t mr_handle;
    std::uint32_t flags;
    std::uint64_t start;
    std::uint64_t length;
    std::uint64_t hca_va;
    std::uint32_t pd_handle;
    std::uint32_t access_flags;
  };
  static_assert(sizeof(Request) == offsetof(ib_uverbs_rereg_mr, access_flags) + 4);
  const auto start = reinterpret_cast<std::uint64_t>(address);
  const Request request{reinterpret_cast<std::uint64_t>(&reply),
                        mr->handle,
                        static_cast<std::uint32_t>(flags),
                        start,
                        length,
                        start,
                        (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd->handle : 0,
                        static_cast<std::uint32_t>(access)};
  if (const int error =
          send_command(mr->context, IB_USER_VERBS_CMD_REREG_MR, request, sizeof reply);
      error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_CMD;
  }
  mr->lkey = reply.lkey;
  mr->rkey = reply.rkey;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) mr->pd = pd;
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  return 0;
}

// The pages of a range come in, as far as the kernel is able; it is advice.
void populate(std::uint64_t address, std::uint64_t length, bool is_write) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = address / page * page;
  const int saved = errno;
  (void)madvise(reinterpret_cast<void*>(begin), address - begin + length,
                is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  errno = saved;
}

int advise(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sges,
           std::uint32_t count) {
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || count == 0) {
    return EINVAL;
  }
  while (count != 0) {
    abi::AdviseMr request{};
    std::array<std::uint64_t, abi::kMaxAdvisedRanges> addresses{};
    request.response = reinterpret_cast<std::uint64_t>(addresses.data());
    request.pd_handle = pd->handle;
    request.advice = advice;
    request.range_count = std::min(count, abi::kMaxAdvisedRanges);
    for (std::uint32_t i = 0; i < request.range_count; ++i) {
      request.ranges[i] = {sges[i].addr, sges[i].length, sges[i].lkey};
    }
    const int error = send_command(pd->context, abi::kCommandAdviseMr, request, sizeof addresses);
    if (error != 0) return error;
    for (std::uint32_t i = 0; i < request.range_count; ++i) {
      if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) break;
      populate(addresses[i], sges[i].length, advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    }
    sges += request.range_count;
    count -= request.range_count;
  }
  return 0;
}

constinit LibraryFunction<int(ibv_mr*, int, ibv_pd*, void*, std::size_t, int)> library_rereg_mr(
    "ibv_rereg_mr");

}  // namespace

void overlay_memory_ops(ibv_context* context) {
  verbs_context* extended = verbs_get_ctx(context);
  if (extended == nullptr) return;
  if (extended->sz < sizeof(*extended) - offsetof(verbs_context, advise_mr)) return;
  extended->advise_mr = advise;
}

}  // namespace rocemu::shim

ROCEMU_INTERPOSE(int, ibv_rereg_mr, ibv_mr* mr, int flags, ibv_pd* pd, void* address,
                 std::size_t length, int access) {
  using namespace rocemu::shim;
  if (fd_kind(mr->context->cmd_fd) != FdKind::kContext) {
    if (const auto rereg_mr = library_rereg_mr.get(); rereg_mr != nullptr) {
      return rereg_mr(mr, flags, pd, address, length, access);
    }
    errno = ENOSYS;
    return IBV_REREG_MR_ERR_CMD;
  }
  return reregister(mr, flags, pd, address, length, access);
}
