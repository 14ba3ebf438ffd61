// The poll_cq overlay. Programs poll completion queues in tight loops, and where cores are short
// they poll while the worker that would complete them waits for a core. After ibv_open_device of an
// emulated device, its public ops.poll_cq is ours: it calls the provider's and, after kPatience
// empty polls in a row on one thread, yields the core at each further one. Only the public layout
// of ibv_context is relied on. Callers that found ibv_open_device by dlsym miss the overlay: their
// polls do not yield, and completions of the queue pairs that they reset stay, as with librxe.
#include "verbs_shim/overlay.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "verbs_shim/export.h"
#include "verbs_shim/fd_table.h"
#include "verbs_shim/overlay_cq.h"
#include "verbs_shim/overlay_library.h"
#include "verbs_shim/overlay_mr.h"
#include "verbs_shim/poll_guard.h"

namespace rocemu::shim {
namespace {

using PollCq = int (*)(ibv_cq*, int, ibv_wc*);

// Distinct provider functions that can be overlaid in one process: the versions of librxe loaded.
constexpr std::size_t kMaxProviders = 8;
constexpr unsigned kPatience = 32;

constinit std::atomic<PollCq> provider_polls[kMaxProviders]{};
thread_local unsigned empty_polls __attribute__((tls_model("initial-exec"))) = 0;

template <std::size_t I>
int poll_and_yield(ibv_cq* cq, int count, ibv_wc* completions) {
  const PollCq poll = provider_polls[I].load(std::memory_order_relaxed);  // set before this ran
  enter_poll(cq);
  const int found = poll(cq, count, completions);
  leave_poll(cq);
  if (found != 0) {
    empty_polls = 0;
  } else if (++empty_polls >= kPatience) {
    empty_polls = kPatience;
    const int saved = errno;
    sched_yield();
    errno = saved;
  }
  return found;
}

template <std::size_t... I>
constexpr std::array<PollCq, sizeof...(I)> make_overlays(std::index_sequence<I...>) {
  return {poll_and_yield<I>...};
}
constexpr auto kOverlays = make_overlays(std::make_index_sequence<kMaxProviders>{});

bool is_ours(PollCq poll) { return std::ranges::find(kOverlays, poll) != kOverlays.end(); }

// Our function for a provider's; the provider's own when there are too many, or it is ours.
PollCq overlay_for(PollCq provider) {
  if (is_ours(provider)) return provider;
  for (std::size_t i = 0; i < kMaxProviders; ++i) {
    PollCq expected = nullptr;
    if (provider_polls[i].compare_exchange_strong(expected, provider, std::memory_order_acq_rel)) {
      return kOverlays[i];
    }
    if (expected == provider) return kOverlays[i];
  }
  return provider;
}

constinit LibraryFunction<ibv_context*(ibv_device*)> library_open_device("ibv_open_device");

}  // namespace

bool has_guarded_polls(const ibv_context* context) { return is_ours(context->ops.poll_cq); }

}  // namespace rocemu::shim

ROCEMU_INTERPOSE(ibv_context*, ibv_open_device, ibv_device* device) {
  using namespace rocemu::shim;
  const auto open_device = library_open_device.get();
  if (open_device == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  ibv_context* context = open_device(device);
  if (context == nullptr || fd_kind(context->cmd_fd) != FdKind::kContext) return context;
  overlay_memory_ops(context);
  if (context->ops.poll_cq != nullptr) context->ops.poll_cq = overlay_for(context->ops.poll_cq);
  overlay_cq_ops(context);
  return context;
}
