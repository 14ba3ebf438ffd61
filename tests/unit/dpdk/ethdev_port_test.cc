// Ports over ethdevs that need no right and no hardware: a ring that gives back what it got, a pair
// of memifs in this process, a null device. The environment starts once, without huge pages.
#include "dataplane/dpdk/ethdev_port.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "dataplane/dpdk/eal.h"
#include "tests/unit/dpdk/frames.h"
#include "tests/unit/dpdk/rig.h"

namespace rocemu::dpdk::test {
namespace {

constexpr wire::MacAddress kOwn = {2, 0, 0, 0, 0, 9};
constexpr wire::MacAddress kForeign = {2, 0, 0, 0, 0, 10};

std::vector<std::string> g_notes;

std::unique_ptr<Port> open_port(const std::string& name) {
  auto port = make_ethdev_port({.name = name, .mac = kOwn});
  EXPECT_TRUE(port.ok()) << (port ? "" : port.error().text);
  return std::move(port).value();
}

TEST(Eal, StartsOnce) {
  EXPECT_TRUE(is_eal_running());
  const auto again = start_eal({});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, EALREADY);
}

TEST(Eal, TellsWhatDriversComplainedAbout) {
  bool is_told = false;
  for (const auto& note : g_notes) is_told |= note.find("no-such-interface") != std::string::npos;
  EXPECT_TRUE(is_told) << "a port on an interface that does not exist was asked for";
}

TEST(EthdevPort, AnUnknownNameIsRefused) {
  const auto port = make_ethdev_port({.name = "net_ring77", .mac = {}});
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.error().code, ENODEV);
  EXPECT_NE(port.error().text.find("net_ring77"), std::string::npos);
}

// The ring device gives back what is sent, so that one port tests both directions. Closing it ends
// it for good: all tests share it, and leave it empty and up.
class RingPort : public testing::Test {
 protected:
  static void SetUpTestSuite() { port_ = open_port("net_ring0"); }
  static void TearDownTestSuite() { port_.reset(); }
  void TearDown() override {
    (void)receive_all(port());
    (void)port().take_discards();
  }
  static Port& port() { return *port_; }

 private:
  static inline std::unique_ptr<Port> port_;
};

TEST_F(RingPort, SaysWhatItIs) {
  EXPECT_EQ(port().mac(), kOwn);
  EXPECT_EQ(port().mtu_bytes(), 4200u);
  EXPECT_TRUE(port().is_link_up());
  EXPECT_FALSE(port().has_input());
  EXPECT_TRUE(port().needs_polling());
  EXPECT_EQ(port().interrupt_fd(), -1);
}

TEST_F(RingPort, BuffersAreAlignedAndHoldTheLargestFrame) {
  const auto buffer = port().allocate(4096 + 8);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->base) % 64, 0u);
  EXPECT_GE(buffer->capacity, engine::kTxHeadroom + 4096 + 8);
  port().discard(*buffer);
  EXPECT_FALSE(port().allocate(100'000));
}

TEST_F(RingPort, NothingSentNothingReceived) {
  EXPECT_TRUE(receive_all(port()).empty());
  EXPECT_TRUE(port().flush());
}

TEST_F(RingPort, FramesOfEverySizeComeBackWhole) {
  for (const std::size_t bytes : {14u, 60u, 1514u, 4214u}) {
    ASSERT_TRUE(send(port(), kBroadcast, 5, bytes));
    EXPECT_TRUE(port().flush());
    EXPECT_EQ(receive_all(port()), (std::vector<Received>{{5, bytes}}));
  }
}

TEST_F(RingPort, FramesToTheOwnAddressDoNotNeedTheDevice) {
  ASSERT_TRUE(send(port(), kOwn, 6));
  EXPECT_TRUE(port().has_input());
  EXPECT_EQ(receive_all(port()), (std::vector<Received>{{6, 64}}));
}

TEST_F(RingPort, FramesToOthersAreNotReceived) {
  ASSERT_TRUE(send(port(), kForeign, 7));
  EXPECT_TRUE(port().flush());
  EXPECT_TRUE(receive_all(port()).empty());
  const PortDiscards discards = port().take_discards();
  EXPECT_EQ(discards.sent + discards.received_down + discards.received_too_long, 0u);
}

TEST_F(RingPort, ATakenFrameOutlivesItsBurst) {
  ASSERT_TRUE(send(port(), kBroadcast, 42));
  ASSERT_TRUE(port().flush());
  std::array<engine::RxFrame, 4> burst;
  ASSERT_EQ(port().receive(burst), 1u);
  const auto kept = burst[0].take();
  ASSERT_TRUE(kept);
  port().release_received(std::span(burst).first(1));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(send(port(), kBroadcast, 1));
    ASSERT_TRUE(port().flush());
    EXPECT_EQ(receive_all(port()).size(), 1u);
  }
  EXPECT_EQ(kept->bytes.back(), std::byte{42});
  kept->release(kept->handle);
}

TEST_F(RingPort, AFullDeviceHoldsBackAndLosesNothing) {
  std::size_t sent = 0;
  while (sent < 100'000 && send(port(), kBroadcast, static_cast<std::uint8_t>(sent))) {
    ++sent;
    (void)port().flush();
  }
  EXPECT_FALSE(port().flush());
  EXPECT_FALSE(port().allocate(64)) << "the limit";
  std::size_t received = 0;
  bool is_in_order = true;
  for (int i = 0; i < 1'000 && received < sent; ++i) {
    for (const Received& frame : receive_all(port())) {
      is_in_order &= frame.number == static_cast<std::uint8_t>(received);
      ++received;
    }
    (void)port().flush();
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(is_in_order);
  EXPECT_EQ(port().take_discards().sent, 0u);
  EXPECT_TRUE(port().allocate(64).has_value() && port().flush());
}

TEST_F(RingPort, BuffersOutAreCountedInTheLimit) {
  std::vector<engine::TxBuffer> out;
  while (auto buffer = port().allocate(64)) out.push_back(*buffer);
  EXPECT_GT(out.size(), 64u);
  EXPECT_LT(out.size(), 1024u);
  for (const auto& buffer : out) port().discard(buffer);
  EXPECT_TRUE(send(port(), kForeign, 1) && port().flush());
}

TEST_F(RingPort, DownDropsAndCountsBothDirections) {
  ASSERT_TRUE(send(port(), kBroadcast, 1) && port().flush());  // on its way
  ASSERT_TRUE(send(port(), kBroadcast, 2));                    // not given to the device
  port().set_admin_up(false);
  EXPECT_FALSE(port().is_link_up());
  ASSERT_TRUE(send(port(), kBroadcast, 3));
  EXPECT_TRUE(port().flush());
  EXPECT_TRUE(receive_all(port()).empty());
  const PortDiscards discards = port().take_discards();
  EXPECT_EQ(discards.sent, 2u);
  EXPECT_EQ(discards.received_down, 1u);
  port().set_admin_up(true);
  EXPECT_TRUE(port().is_link_up());
}

TEST_F(RingPort, AFrameShorterThanAHeaderIsDropped) {
  ASSERT_TRUE(send(port(), kBroadcast, 1, 13));
  EXPECT_TRUE(port().flush());
  EXPECT_TRUE(receive_all(port()).empty());
  EXPECT_EQ(port().take_discards().sent, 1u);
}

TEST(NullPort, TakesEverythingAndReceivesNothing) {
  const auto port = open_port("net_null0");
  for (int i = 0; i < 5'000; ++i) {
    ASSERT_TRUE(send(*port, kBroadcast, 1));
    ASSERT_TRUE(port->flush());
  }
  EXPECT_TRUE(receive_all(*port).empty());
}

TEST(MemifPort, CarriesFramesOverItsLinkAndDropsWithoutOne) {
  auto server = make_ethdev_port({.name = "net_memif0", .mac = kOwn}).value();
  EXPECT_EQ(server->mtu_bytes(), 4200u);
  EXPECT_FALSE(server->is_link_up()) << "nobody at the other end";
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_TRUE(send(*server, kForeign, 1)) << "no peer, no back-pressure";
    ASSERT_TRUE(server->flush());
  }
  EXPECT_EQ(server->take_discards().sent, 3'000u);
  auto client = make_ethdev_port({.name = "net_memif1", .mac = kForeign}).value();
  ASSERT_TRUE(eventually([&] { return server->is_link_up() && client->is_link_up(); }));
  // The client's first look gives the server its buffers.
  EXPECT_TRUE(receive_all(*client).empty());
  for (const std::size_t bytes : {60u, 2048u, 4214u}) {
    ASSERT_TRUE(send(*server, kForeign, 7, bytes) && server->flush());
    EXPECT_EQ(receive_all(*client), (std::vector<Received>{{7, bytes}}));
    ASSERT_TRUE(send(*client, kOwn, 8, bytes) && client->flush());
    EXPECT_EQ(receive_all(*server), (std::vector<Received>{{8, bytes}}));
  }
  // One byte more than a frame buffer holds in one piece.
  ASSERT_TRUE(send(*server, kForeign, 9, 4608) && server->flush());
  EXPECT_EQ(receive_all(*client), (std::vector<Received>{{9, 4608}}));
  const auto buffer = server->allocate(64);
  ASSERT_TRUE(buffer);
  std::memcpy(buffer->base, kForeign.data(), kForeign.size());
  server->transmit({.buffer = *buffer, .length = 4609, .references = {}, .token = {}});
  EXPECT_TRUE(server->flush());
  EXPECT_TRUE(receive_all(*client).empty());
  EXPECT_EQ(client->take_discards().received_too_long, 1u);
  client.reset();
  EXPECT_TRUE(eventually([&] { return !server->is_link_up(); }));
}

TEST(WorkerOnPorts, FramesPassBetweenTwoPortsOfOneWorker) {
  WorkerBlock stats;
  std::array<CounterBlock, 2> counters;
  memory::PlainPort memory;
  memory::MrTable regions(16, Prng(1));
  Worker worker({}, stats);
  engine::EngineConfig engine;
  engine.limits = {.max_qps = 64, .max_cqs = 16, .max_srqs = 1};
  std::size_t i = 0;
  for (const char* name : {"net_memif2", "net_memif3"}) {
    auto port = make_ethdev_port({.name = name, .mac = i == 0 ? kOwn : kForeign});
    ASSERT_TRUE(port.ok()) << port.error().text;
    worker.add_device(std::move(port).value(), engine, memory, regions, counters[i], Prng(i));
    ++i;
  }
  worker.start();
  ASSERT_TRUE(eventually([&] {
    return worker.run([&] { return worker.port(0).is_link_up() && worker.port(1).is_link_up(); });
  }));
  const auto frame = other_frame(kForeign);
  for (int n = 0; n < 100; ++n) {
    ASSERT_TRUE(worker.run([&] { return worker.send_raw(0, frame); }));
    std::optional<PuntedFrame> punted;
    ASSERT_TRUE(eventually([&] {
      while (auto next = worker.next_notification()) {
        if (auto* found = std::get_if<PuntedFrame>(&*next)) punted = std::move(*found);
      }
      return punted.has_value();
    })) << n;
    EXPECT_EQ(punted->device, 1u);
    EXPECT_EQ(punted->bytes, frame);
  }
  worker.stop();
}

// In a child, since the environment starts once.
bool is_unknown_driver_refused() {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto started = start_eal({"--no-huge", "--vdev", "net_nonsense0"});
    const bool is_named =
        !started && started.error().text.find("net_nonsense0") != std::string::npos;
    ::_exit(is_named && started.error().code > 0 ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!is_unknown_driver_refused()) {
    std::printf("failed: an unknown driver gives no clear error\n");
    return 1;
  }
  cpu_set_t before;
  cpu_set_t after;
  ::pthread_getaffinity_np(::pthread_self(), sizeof before, &before);
  const std::string memif = ",socket=/rocemu-test-" + std::to_string(::getpid());
  const auto started = start_eal({"--no-huge", "--vdev", "net_ring0", "--vdev", "net_null0,no-rx=1",
                                  "--vdev", "net_memif0,role=server,bsize=8192" + memif, "--vdev",
                                  "net_memif1,role=client,bsize=8192" + memif, "--vdev",
                                  "net_memif2,role=server,id=1" + memif, "--vdev",
                                  "net_memif3,role=client,id=1" + memif, "--vdev",
                                  "net_af_packet0,iface=no-such-interface"});
  if (!started) {
    std::printf("failed: %s\n", started.error().text.c_str());
    return 1;
  }
  ::pthread_getaffinity_np(::pthread_self(), sizeof after, &after);
  if (!CPU_EQUAL(&before, &after)) {
    std::printf("failed: EAL kept the calling thread on its core\n");
    return 1;
  }
  g_notes = started->notes;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace rocemu::dpdk::test

int main(int argc, char** argv) { return rocemu::dpdk::test::run(argc, argv); }
