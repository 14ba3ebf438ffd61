// The poll_cq overlay, against fake_verbs.
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tests/unit/shim/probe.h"

extern "C" std::atomic<int> fake_polls[3];

namespace {
std::atomic<int> yields{0};
}

// The shim's calls arrive here: the program comes first in symbol order.
extern "C" int sched_yield() noexcept {
  yields.fetch_add(1);
  return 0;
}

namespace rocemu::probe {
namespace {

ibv_context* open_verbs(std::uintptr_t number) {
  ibv_context* context = ibv_open_device(reinterpret_cast<ibv_device*>(number));
  EXPECT(context != nullptr && context->cmd_fd >= 0);
  return context;
}

int poll(ibv_context* context, std::intptr_t result) {
  ibv_wc completion{};
  return context->ops.poll_cq(reinterpret_cast<ibv_cq*>(result), 1, &completion);
}

void overlay_yields_after_many_empty_polls() {
  ibv_context* context = open_verbs(0);
  for (int i = 0; i < 31; ++i) EXPECT(poll(context, 0) == 0);
  EXPECT(yields.load() == 0);
  EXPECT(poll(context, 0) == 0 && poll(context, 0) == 0);
  EXPECT(yields.load() == 2);
  EXPECT(poll(context, 3) == 3);  // a completion: patient again
  EXPECT(poll(context, 0) == 0);
  EXPECT(yields.load() == 2);
  EXPECT(poll(context, -5) == -5);
  EXPECT(fake_polls[0].load() == 36);
  EXPECT(ibv_close_device(context) == 0);
}

void overlay_counts_by_thread() {
  ibv_context* context = open_verbs(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([context] {
      for (int i = 0; i < 31; ++i) EXPECT(poll(context, 0) == 0);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT(yields.load() == 0);
}

void overlay_keeps_providers_apart() {
  ibv_context* contexts[] = {open_verbs(0), open_verbs(1), open_verbs(0), open_verbs(1)};
  for (ibv_context* context : contexts) EXPECT(poll(context, 1) == 1);
  EXPECT(fake_polls[0].load() == 2 && fake_polls[1].load() == 2);
  EXPECT(contexts[0]->ops.poll_cq == contexts[2]->ops.poll_cq);
  EXPECT(contexts[0]->ops.poll_cq != contexts[1]->ops.poll_cq);
}

void overlay_leaves_hardware_alone() {
  ibv_context* emulated = open_verbs(0);
  ibv_context* hardware = open_verbs(2);
  for (int i = 0; i < 100; ++i) EXPECT(poll(hardware, 0) == 0);
  EXPECT(yields.load() == 0);
  for (int i = 0; i < 100; ++i) EXPECT(poll(emulated, 0) == 0);
  EXPECT(yields.load() > 0);
}

constexpr Case kCases[] = {
    {"overlay_yields_after_many_empty_polls", overlay_yields_after_many_empty_polls},
    {"overlay_counts_by_thread", overlay_counts_by_thread},
    {"overlay_keeps_providers_apart", overlay_keeps_providers_apart},
    {"overlay_leaves_hardware_alone", overlay_leaves_hardware_alone},
};

}  // namespace

std::span<const Case> library_cases() { return kCases; }

}  // namespace rocemu::probe
