// A stand-in for libibverbs with two providers, to test the overlay against: it is found
// under the real library's name and symbol version, and its devices are numbers. Device 0 and 1 are
// emulated ones with a provider each; device 2 is real hardware, which must be left alone.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>

extern "C" {
extern std::atomic<int> fake_polls[3];
std::atomic<int> fake_polls[3];
}

namespace {

template <int Provider>
int poll(ibv_cq* cq, int, ibv_wc*) {
  ++fake_polls[Provider];
  return static_cast<int>(reinterpret_cast<std::intptr_t>(cq));  // the probe says what to return
}

// An extended CQ is polled with success unless its cookie is not null.
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr*) { return cq->cq_context != nullptr ? ENOENT : 0; }
void end_poll(ibv_cq_ex*) {}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  auto* cq = new (std::nothrow) ibv_cq_ex{};
  if (cq == nullptr) return nullptr;
  cq->context = context;
  cq->cq_context = attr->cq_context;
  cq->start_poll = start_poll;
  cq->end_poll = end_poll;
  return cq;
}

}  // namespace

extern "C" ibv_context* ibv_open_device(ibv_device* device) {
  const auto number = reinterpret_cast<std::uintptr_t>(device);
  auto* extended = new (std::nothrow) verbs_context{};
  if (extended == nullptr) return nullptr;
  extended->sz = sizeof *extended;
  ibv_context* context = &extended->context;
  extended->create_cq_ex = create_cq_ex;
  context->abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->cmd_fd = open(number == 2 ? "/dev/null" : "/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  context->ops.poll_cq = number == 0 ? poll<0> : number == 1 ? poll<1> : poll<2>;
  return context;
}

extern "C" int ibv_close_device(ibv_context* context) {
  close(context->cmd_fd);
  delete verbs_get_ctx(context);
  return 0;
}

extern "C" int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  return 77;  // the library's own was reached
}

extern "C" int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attr, int) {
  return attr->qp_state == IBV_QPS_SQD ? EINVAL : 0;
}
