// The worker's loop: jobs, sleeping and waking, what it tells control, and that nobody starves.
#include "dataplane/dpdk/worker.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "rocemu/base/prng.h"
#include "tests/unit/dpdk/rig.h"
#include "verbs_shim/doorbell.h"

namespace rocemu::dpdk::test {
namespace {

// Runs `done` until it holds, 20 s at most.
template <typename Condition>
bool eventually(Condition done) {
  for (int i = 0; i < 21'000; ++i) {
    if (done()) return true;
    if (i < 1'000) {
      std::this_thread::yield();
    } else {
      ::poll(nullptr, 0, 1);
    }
  }
  return false;
}

TEST(Worker, JobsRunInlineBeforeTheStart) {
  Rig rig;
  EXPECT_EQ(rig.worker->run([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
}

TEST(Worker, JobsRunOnTheWorkerAndGiveTheirResultBack) {
  Rig rig;
  rig.worker->start();
  EXPECT_NE(rig.worker->run([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
  int calls = 0;
  for (int i = 0; i < 2'000; ++i) {
    EXPECT_EQ(rig.worker->run([&, i] { return ++calls + i; }), 2 * i + 1);
  }
  EXPECT_EQ(*rig.worker->run([] { return std::make_unique<int>(5); }), 5);
  rig.worker->stop();
  rig.worker->run([&] { calls = -1; });
  EXPECT_EQ(calls, -1);
}

TEST(Worker, AnIdleWorkerBlocks) {
  Rig rig;
  rig.worker->start();
  ASSERT_TRUE(eventually([&] { return rig.stat(rig.stats.sleeps) != 0; }));
  rig.worker->run([] {});
  const auto before = rig.stat(rig.stats.turns);
  ::poll(nullptr, 0, 50);
  // A worker that spun or yielded would have made many thousands.
  EXPECT_LT(rig.stat(rig.stats.turns) - before, 2'000u);
}

TEST(Worker, ItCanBeStoppedAndStartedAgain) {
  Rig rig;
  for (int i = 0; i < 20; ++i) {
    rig.worker->start();
    EXPECT_EQ(rig.worker->run([] { return 1; }), 1);
    rig.worker->stop();
    rig.worker->stop();
  }
}

TEST(Worker, OtherFramesGoToControlWithTheirBytes) {
  Rig rig;
  rig.worker->start();
  const auto frame = other_frame(kMacB);
  ASSERT_TRUE(rig.worker->run([&] { return rig.worker->send_raw(0, frame); }));
  const auto punted = rig.await<PuntedFrame>();
  ASSERT_TRUE(punted);
  EXPECT_EQ(punted->device, 1u);
  EXPECT_EQ(punted->bytes, frame);
  EXPECT_EQ(rig.counters[1].get(Counter::punted_frames), 1u);
}

TEST(Worker, AFloodOfOtherFramesIsBoundedAndDisplacesNoEvent) {
  Rig rig;
  rig.worker->start();
  const auto frame = other_frame(kMacB);
  std::uint64_t sent = 0;
  while (sent < 3'000) {
    sent += rig.worker->run([&] { return rig.worker->send_raw(0, frame) ? 1u : 0u; });
  }
  ASSERT_TRUE(eventually([&] {
    return rig.counters[1].get(Counter::punted_frames) +
               rig.counters[1].get(DropReason::not_roce) ==
           sent;
  }));
  EXPECT_EQ(rig.counters[1].get(Counter::port_rcv_errors),
            rig.counters[1].get(DropReason::not_roce));
  EXPECT_GT(rig.counters[1].get(DropReason::not_roce), 0u);
  rig.worker->run([&] { rig.worker->port(0).set_admin_up(false); });
  EXPECT_TRUE(rig.await<LinkChange>());
}

TEST(Worker, AnOverlongOtherFrameIsDropped) {
  Rig rig;
  rig.worker->start();
  const auto frame = other_frame(kMacB, kMaxPuntedBytes + 1);
  ASSERT_TRUE(rig.worker->run([&] { return rig.worker->send_raw(0, frame); }));
  EXPECT_TRUE(eventually([&] { return rig.counters[1].get(DropReason::not_roce) == 1; }));
  EXPECT_FALSE(rig.worker->next_notification());
}

TEST(Worker, LinkChangesAreTold) {
  Rig rig;
  rig.worker->start();
  for (const bool is_up : {false, true}) {
    rig.worker->run([&] { rig.worker->port(1).set_admin_up(is_up); });
    const auto change = rig.await<LinkChange>();
    ASSERT_TRUE(change);
    EXPECT_EQ(change->device, 1u);
    EXPECT_EQ(change->is_up, is_up);
  }
  EXPECT_EQ(rig.counters[1].get(Counter::link_downed), 1u);
}

TEST(Worker, FramesLostToALinkThatIsDownAreCountedAtTheirEnd) {
  Rig rig;
  rig.worker->start();
  const auto frame = other_frame(kMacB);
  rig.worker->run([&] { rig.worker->port(1).set_admin_up(false); });
  rig.worker->run([&] { return rig.worker->send_raw(0, frame); });
  EXPECT_TRUE(eventually([&] { return rig.counters[1].get(DropReason::link_down) == 1; }));
  EXPECT_EQ(rig.counters[1].get(Counter::port_rcv_errors), 1u);
  rig.worker->run([&] { rig.worker->port(0).set_admin_up(false); });
  rig.worker->run([&] { return rig.worker->send_raw(0, frame); });
  EXPECT_TRUE(eventually([&] { return rig.counters[0].get(Counter::port_xmit_discards) == 1; }));
}

struct ClientTest : testing::Test {
  std::vector<std::byte> ring_memory = std::vector<std::byte>(Client::kRingBytes);
  std::vector<std::byte> other_memory = std::vector<std::byte>(Client::kRingBytes);
  Rig rig;
};

// Each ring finds the worker awake, falling asleep or asleep, as the pauses fall. The context has
// no queues, so that no timer of the engine wakes the worker in place of a lost doorbell: entries
// for slots that were never handed out are counted, which shows that they were seen.
TEST(Sleep, NoWakeUpIsLost) {
  Rig rig;
  rig.worker->start();
  auto page = std::make_unique<DoorbellPage>();
  std::vector<std::byte> no_rings(4096);
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC);
  rig.worker->run([&] { rig.worker->add_context(ContextId{1}, 0, page.get(), wake_fd, no_rings); });
  Prng random(3);
  for (std::uint64_t i = 1; i <= 50'000; ++i) {
    shim::arm_cq(*page, wake_fd, 5, kArmedAny);
    const auto is_seen = [&] { return rig.counters[0].get(Counter::client_ring_errors) == i; };
    for (int spins = 0; !is_seen() && spins < 20'000; ++spins) std::this_thread::yield();
    ASSERT_TRUE(is_seen() || eventually(is_seen)) << "ring " << i;
    // Around the time that the worker looks on before it sleeps.
    for (auto pause = random.below(random.below(16) == 0 ? 60'000 : 4'000); pause != 0; --pause) {
      asm volatile("");
    }
  }
  EXPECT_GT(rig.stat(rig.stats.sleeps), 0u);
  rig.worker->run([&] { rig.worker->remove_context(ContextId{1}); });
  ::close(wake_fd);
}

TEST(Sleep, NoJobIsLost) {
  Rig rig;
  rig.worker->start();
  Prng random(4);
  int count = 0;
  for (int i = 0; i < 20'000; ++i) {
    rig.worker->run([&] { ++count; });
    for (auto pause = random.below(4'000); pause != 0; --pause) asm volatile("");
  }
  EXPECT_EQ(count, 20'000);
}

TEST_F(ClientTest, WorkRequestsAreSeen) {
  rig.worker->start();
  Client client(rig, ContextId{1}, 0, ring_memory);
  for (int i = 0; i < 2'000; ++i) {
    client.post();
    ASSERT_TRUE(eventually([&] { return client.poll(); })) << i;
  }
}

TEST_F(ClientTest, EachArmedCompletionRaisesOneEvent) {
  rig.worker->start();
  Client client(rig, ContextId{1}, 7, ring_memory);
  for (int i = 0; i < 5'000; ++i) {
    client.arm();
    client.post();
    ASSERT_TRUE(client.await_event()) << i;
    ASSERT_TRUE(client.poll()) << i;
  }
  pollfd p{.fd = client.pipe_ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0) << "no event without its completion";
}

// A context that the worker does not watch any more must be heard by one that never sleeps.
TEST(Starvation, ABusyWorkerHearsContextsThatItDoesNotWatch) {
  std::vector<std::byte> ring_memory(Client::kRingBytes);
  WorkerConfig config;
  config.spin_before_sleep = seconds(1000);
  Rig rig(config);
  rig.worker->start();
  Client quiet(rig, ContextId{2}, 1, ring_memory);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(eventually([&] { return quiet.page->worker_state.load() == kAsleep; }));
    quiet.post();
    ASSERT_TRUE(eventually([&] { return quiet.poll(); })) << i;
  }
  EXPECT_EQ(rig.stat(rig.stats.sleeps), 0u);
}

TEST_F(ClientTest, HostilePagesAreCountedAndHurtNobody) {
  rig.worker->start();
  Client hostile(rig, ContextId{1}, 0, ring_memory);
  Client other(rig, ContextId{2}, 1, other_memory);
  Prng random(9);
  for (int round = 0; round < 200; ++round) {
    for (auto& entry : hostile.page->entries) {
      entry.store(static_cast<std::uint32_t>(random.next()), std::memory_order_relaxed);
    }
    hostile.page->producer = static_cast<std::uint32_t>(random.next());
    hostile.page->consumer = static_cast<std::uint32_t>(random.next());
    hostile.page->sweep = 1;
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(hostile.wake_fd, &one, sizeof one), 8);
    other.post();
    ASSERT_TRUE(eventually([&] { return other.poll(); }));
  }
  EXPECT_GT(rig.counters[0].get(Counter::client_ring_errors), 0u);
}

TEST_F(ClientTest, AFullPipeIsFilledUpWhenItIsRead) {
  rig.worker->start();
  ::signal(SIGPIPE, SIG_IGN);
  Client client(rig, ContextId{1}, 0, ring_memory);
  std::uint64_t junk = 0;
  std::uint64_t junk_count = 0;
  while (::write(client.pipe_ends[1], &junk, sizeof junk) == 8) ++junk_count;
  client.arm();
  client.post();
  ASSERT_TRUE(eventually([&] { return client.poll(); }));
  for (std::uint64_t i = 0; i < junk_count; ++i) {
    ASSERT_EQ(::read(client.pipe_ends[0], &junk, sizeof junk), 8);
  }
  EXPECT_TRUE(client.await_event()) << "the worker tries again by itself";
}

TEST_F(ClientTest, RingMemoryThatIsTakenAwayEndsItsContextOnly) {
  rig.worker->start();
  const int fd = ::memfd_create("rings", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, Client::kRingBytes), 0);
  void* p = ::mmap(nullptr, Client::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(p, MAP_FAILED);
  {
    Client victim(rig, ContextId{5}, 0, {static_cast<std::byte*>(p), Client::kRingBytes});
    Client other(rig, ContextId{6}, 1, other_memory);
    ASSERT_EQ(::ftruncate(fd, 0), 0);
    shim::ring_qp(*victim.page, victim.wake_fd, 0);
    const auto fault = rig.await<ContextFault>();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->context, ContextId{5});
    other.post();
    EXPECT_TRUE(eventually([&] { return other.poll(); }));
  }
  EXPECT_FALSE(rig.worker->next_notification()) << "told once";
  ::munmap(p, Client::kRingBytes);
  ::close(fd);
}

}  // namespace
}  // namespace rocemu::dpdk::test
