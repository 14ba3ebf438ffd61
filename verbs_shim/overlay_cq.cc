// ibv_modify_qp to RESET on emulated devices: the queue pair's completions that nobody polled go
// with it, as with the providers of hardware, which remove them under the lock of the CQ. librxe
// does not. The ring has two users: the worker, which writes it, and the program's polls. Here the
// polls are stopped (poll_guard.h), and the daemon closes the gaps on the worker. Extended CQs poll
// through functions of their own, which are replaced for that when the CQ is made.
#include "verbs_shim/overlay_cq.h"

#include <atomic>
#include <cerrno>

#include "rocemu/abi/commands.h"
#include "verbs_shim/export.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/overlay.h"
#include "verbs_shim/overlay_command.h"
#include "verbs_shim/overlay_library.h"
#include "verbs_shim/poll_guard.h"

namespace rocemu::shim {
namespace {

using CreateCqEx = ibv_cq_ex* (*)(ibv_context*, ibv_cq_init_attr_ex*);
using StartPoll = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);
using EndPoll = void (*)(ibv_cq_ex*);

// The functions of the one librxe that is loaded.
constinit std::atomic<CreateCqEx> provider_create{nullptr};
constinit std::atomic<StartPoll> provider_start{nullptr};
constinit std::atomic<EndPoll> provider_end{nullptr};
// Without it, an extended CQ is polled past the guard: no completion is removed any more.
constinit std::atomic<bool> is_guard_complete{true};
// Polls that this thread has begun and not ended: it would wait for itself.
thread_local unsigned open_polls __attribute__((tls_model("initial-exec"))) = 0;

// Remembers `function` as the provider's; false when another one is.
template <typename F>
bool is_the_one(std::atomic<F>& known, F function) {
  F expected = nullptr;
  return known.compare_exchange_strong(expected, function, std::memory_order_acq_rel) ||
         expected == function;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  enter_poll(cq);
  const int result = provider_start.load(std::memory_order_relaxed)(cq, attr);
  if (result != 0) {
    leave_poll(cq);  // no ibv_end_poll follows
  } else {
    ++open_polls;
  }
  return result;
}

void end_poll(ibv_cq_ex* cq) {
  provider_end.load(std::memory_order_relaxed)(cq);
  if (open_polls != 0) --open_polls;
  leave_poll(cq);
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  ibv_cq_ex* cq = provider_create.load(std::memory_order_relaxed)(context, attr);
  if (cq == nullptr) return nullptr;
  if (is_the_one(provider_start, cq->start_poll) && is_the_one(provider_end, cq->end_poll)) {
    cq->start_poll = start_poll;
    cq->end_poll = end_poll;
  } else {
    is_guard_complete.store(false, std::memory_order_relaxed);
  }
  return cq;
}

// The reset is done, whatever comes of this; completions that stay are what Soft-RoCE leaves.
void drop_completions(const ibv_qp* qp) {
  if (!has_guarded_polls(qp->context) || open_polls != 0) return;
  if (!is_guard_complete.load(std::memory_order_relaxed)) return;
  if (qp->send_cq == nullptr || qp->recv_cq == nullptr) return;
  const int saved = errno;
  if (const StoppedPolls stopped(qp->send_cq, qp->recv_cq); stopped) {
    (void)send_command(qp->context, abi::kCommandDropCompletions,
                       abi::DropCompletions{qp->handle, 0}, 0);
  }
  errno = saved;
}

constinit LibraryFunction<int(ibv_qp*, ibv_qp_attr*, int)> library_modify_qp("ibv_modify_qp");

}  // namespace

void overlay_cq_ops(ibv_context* context) {
  verbs_context* extended = verbs_get_ctx(context);
  const bool has_extended_cqs =
      extended != nullptr &&
      extended->sz >= sizeof(*extended) - offsetof(verbs_context, create_cq_ex) &&
      extended->create_cq_ex != nullptr;
  if (!has_extended_cqs) return;
  if (is_the_one(provider_create, extended->create_cq_ex)) {
    extended->create_cq_ex = create_cq_ex;
  } else {
    is_guard_complete.store(false, std::memory_order_relaxed);
  }
}

}  // namespace rocemu::shim

ROCEMU_INTERPOSE(int, ibv_modify_qp, ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  using namespace rocemu::shim;
  const auto modify_qp = library_modify_qp.get();
  if (modify_qp == nullptr) return ENOSYS;
  const int result = modify_qp(qp, attr, mask);
  if (result == 0 && (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET &&
      fd_kind(qp->context->cmd_fd) == FdKind::kContext) {
    drop_completions(qp);
  }
  return result;
}
