// The overlay, against fake_verbs: poll_cq, rereg_mr, advise_mr, modify_qp.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <chrono>
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

// The fake daemon's answer to any command is a pattern: its first two words.
constexpr std::uint32_t kFirstWord = 0xa3a2'a1a0;
constexpr std::uint32_t kSecondWord = 0xa7a6'a5a4;
constexpr std::uint32_t kRefusedMr = 0xdead;  // as fake_daemon.h says

void rereg_mr_is_a_command_and_updates_the_region() {
  ibv_context* context = open_verbs(0);
  ibv_pd old_pd{context, 1};
  ibv_pd new_pd{context, 2};
  char memory[64];
  ibv_mr mr{context, &old_pd, nullptr, 0, 9, 1, 1};
  const long before = counter("commands");
  EXPECT(ibv_rereg_mr(&mr, IBV_REREG_MR_CHANGE_PD, &new_pd, nullptr, 0, 0) == 0);
  EXPECT(mr.pd == &new_pd && mr.addr == nullptr);
  EXPECT(mr.lkey == kFirstWord && mr.rkey == kSecondWord);
  EXPECT(ibv_rereg_mr(&mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory, 64, 0) == 0);
  EXPECT(mr.pd == &new_pd && mr.addr == memory && mr.length == 64);
  EXPECT(counter("commands") == before + 2);
  mr.handle = kRefusedMr;
  errno = 0;
  EXPECT(ibv_rereg_mr(&mr, IBV_REREG_MR_CHANGE_PD, &old_pd, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD);
  EXPECT(errno == ENXIO && mr.pd == &new_pd);
  EXPECT(ibv_close_device(context) == 0);
}

void rereg_mr_checks_its_input_first() {
  ibv_context* context = open_verbs(0);
  ibv_pd pd{context, 1};
  ibv_mr mr{context, &pd, nullptr, 0, 9, 1, 1};
  const long before = counter("commands");
  constexpr int kMove = IBV_REREG_MR_CHANGE_TRANSLATION;
  char memory[8];
  EXPECT(ibv_rereg_mr(&mr, 8, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  EXPECT(ibv_rereg_mr(&mr, kMove, nullptr, nullptr, 8, 0) == IBV_REREG_MR_ERR_INPUT);
  EXPECT(ibv_rereg_mr(&mr, kMove, nullptr, memory, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  EXPECT(ibv_rereg_mr(&mr, kMove, nullptr, memory, 8, 1) == IBV_REREG_MR_ERR_INPUT);
  EXPECT(ibv_rereg_mr(&mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0) ==
         IBV_REREG_MR_ERR_INPUT);
  EXPECT(errno == EINVAL && counter("commands") == before);
}

void memory_verbs_of_hardware_are_its_own() {
  ibv_context* context = open_verbs(2);
  ibv_pd pd{context, 1};
  ibv_mr mr{context, &pd, nullptr, 0, 9, 1, 1};
  ibv_sge sge{};
  EXPECT(ibv_rereg_mr(&mr, 8, nullptr, nullptr, 0, 0) == 77);
  EXPECT(ibv_advise_mr(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EOPNOTSUPP);
}

void advice_goes_to_the_daemon_in_pieces() {
  ibv_context* context = open_verbs(0);
  ibv_pd pd{context, 1};
  std::vector<ibv_sge> sges(33);
  const long before = counter("commands");
  const auto advise = [&](ibv_advise_mr_advice advice, std::uint32_t flags, std::uint32_t count) {
    return ibv_advise_mr(&pd, advice, flags, sges.data(), count);
  };
  EXPECT(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, 1) == 0);
  EXPECT(counter("commands") == before + 1);
  EXPECT(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, 33) == 0);
  EXPECT(counter("commands") == before + 3);
  EXPECT(advise(static_cast<ibv_advise_mr_advice>(3), 0, 1) == EOPNOTSUPP);
  EXPECT(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 2, 1) == EINVAL);
  EXPECT(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 0) == EINVAL);
  EXPECT(counter("commands") == before + 3);
}

ibv_cq_ex* make_cq_ex(ibv_context* context, void* cookie = nullptr) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 1;
  attr.cq_context = cookie;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &attr);
  EXPECT(cq != nullptr);
  return cq;
}

// Commands that modify_qp to `state` sent.
long commands_of(ibv_qp& qp, ibv_qp_state state, int mask = IBV_QP_STATE) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  const long before = counter("commands");
  EXPECT(ibv_modify_qp(&qp, &attr, mask) == (state == IBV_QPS_SQD ? EINVAL : 0));
  return counter("commands") - before;
}

void reset_drops_the_completions_and_nothing_else_does() {
  ibv_context* context = open_verbs(0);
  ibv_cq cqs[2]{};
  ibv_qp qp{};
  qp.context = context;
  qp.send_cq = &cqs[0];
  qp.recv_cq = &cqs[1];
  errno = 7;
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 1 && errno == 7);
  EXPECT(commands_of(qp, IBV_QPS_RESET, IBV_QP_PORT) == 0);
  EXPECT(commands_of(qp, IBV_QPS_ERR) == 0);
  EXPECT(commands_of(qp, IBV_QPS_SQD) == 0);
  qp.recv_cq = &cqs[0];
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 1);
  EXPECT(poll(context, 1) == 1);  // polls go on
  qp.context = open_verbs(2);
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 0);
}

void reset_waits_for_polls_of_other_threads_and_not_for_its_own() {
  ibv_context* context = open_verbs(0);
  ibv_cq_ex* cq = make_cq_ex(context);
  ibv_cq_ex* empty = make_cq_ex(context, context);
  ibv_qp qp{};
  qp.context = context;
  qp.send_cq = qp.recv_cq = ibv_cq_ex_to_cq(cq);
  ibv_poll_cq_attr attr{};
  EXPECT(ibv_start_poll(empty, &attr) == ENOENT);
  EXPECT(ibv_start_poll(cq, &attr) == 0);
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 0);  // inside its own poll
  std::atomic<bool> is_ended{false};
  std::atomic<bool> was_ended{false};
  std::thread other([&] {
    EXPECT(commands_of(qp, IBV_QPS_RESET) == 1);
    was_ended = is_ended.load();
  });
  while (yields.load() < 10) std::this_thread::sleep_for(std::chrono::microseconds(100));
  is_ended = true;
  ibv_end_poll(cq);
  other.join();
  EXPECT(was_ended.load());
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 1);
}

// Its polls do not pass the guard, so the daemon must not move what they read.
void reset_leaves_a_context_that_the_overlay_missed_alone() {
  const auto open = reinterpret_cast<ibv_context* (*)(ibv_device*)>(dlvsym(
      dlopen("libfake_verbs.so.0", RTLD_LAZY | RTLD_NOLOAD), "ibv_open_device", "IBVERBS_1.1"));
  EXPECT(open != nullptr);
  ibv_cq cq{};
  ibv_qp qp{};
  qp.context = open(nullptr);
  qp.send_cq = qp.recv_cq = &cq;
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 0);
  qp.context = open_verbs(0);
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 1);
}

void an_unended_poll_of_another_thread_does_not_block_reset_for_ever() {
  ibv_context* context = open_verbs(0);
  ibv_cq_ex* cq = make_cq_ex(context);
  ibv_qp qp{};
  qp.context = context;
  qp.send_cq = qp.recv_cq = ibv_cq_ex_to_cq(cq);
  std::thread([&] {
    ibv_poll_cq_attr attr{};
    EXPECT(ibv_start_poll(cq, &attr) == 0);
  }).join();
  EXPECT(commands_of(qp, IBV_QPS_RESET) == 0);
}

constexpr Case kCases[] = {
    {"overlay_yields_after_many_empty_polls", overlay_yields_after_many_empty_polls},
    {"overlay_counts_by_thread", overlay_counts_by_thread},
    {"overlay_keeps_providers_apart", overlay_keeps_providers_apart},
    {"overlay_leaves_hardware_alone", overlay_leaves_hardware_alone},
    {"rereg_mr_is_a_command_and_updates_the_region", rereg_mr_is_a_command_and_updates_the_region},
    {"rereg_mr_checks_its_input_first", rereg_mr_checks_its_input_first},
    {"memory_verbs_of_hardware_are_its_own", memory_verbs_of_hardware_are_its_own},
    {"advice_goes_to_the_daemon_in_pieces", advice_goes_to_the_daemon_in_pieces},
    {"reset_drops_the_completions_and_nothing_else_does",
     reset_drops_the_completions_and_nothing_else_does},
    {"reset_waits_for_polls_of_other_threads_and_not_for_its_own",
     reset_waits_for_polls_of_other_threads_and_not_for_its_own},
    {"reset_leaves_a_context_that_the_overlay_missed_alone",
     reset_leaves_a_context_that_the_overlay_missed_alone},
    {"an_unended_poll_of_another_thread_does_not_block_reset_for_ever",
     an_unended_poll_of_another_thread_does_not_block_reset_for_ever},
};

}  // namespace

std::span<const Case> library_cases() { return kCases; }

}  // namespace rocemu::probe
