// The netdev's frames between link and kernel, a pair of packet sockets standing for the TAP.
#include "dataplane/dpdk/host_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "dataplane/dpdk/wire_port.h"
#include "dataplane/wire/neighbour.h"
#include "tests/unit/dpdk/rig.h"

namespace rocemu::dpdk::test {
namespace {

/// The kernel's side is `kernel`, the worker's `tap`.
struct Tap {
  Tap() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    kernel = fds[0];
    tap = fds[1];
  }
  ~Tap() {
    ::close(kernel);
    ::close(tap);
  }
  void send(std::span<const std::byte> frame) const {
    ASSERT_EQ(::write(kernel, frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
  }
  /// Waits for a frame, 20 s at most.
  std::vector<std::byte> receive() const {
    pollfd readable{.fd = kernel, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 20'000) != 1) return {};
    std::vector<std::byte> frame(fabric::kSlotBytes);
    const ssize_t n = ::read(kernel, frame.data(), frame.size());
    frame.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return frame;
  }
  bool has_frame() const {
    pollfd readable{.fd = kernel, .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, 0) == 1;
  }

  int kernel = -1;
  int tap = -1;
};

std::vector<std::byte> arp_request() {
  return wire::make_neighbour_frame(
      {.kind = wire::NeighbourKind::kRequest,
       .sender_mac = kMacB,
       .sender = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2},
       .target_mac = {},
       .target = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}},
      std::nullopt);
}

TEST(HostLink, ForwardsAtMostItsBudgetAndGoesOnNextTime) {
  fabric::Wire wire;
  WirePort sender(wire.attach(kMacA));
  WirePort receiver(wire.attach(kMacB));
  CounterBlock counters;
  const Tap tap;
  HostLink link(tap.tap, counters);
  for (int i = 0; i < 5; ++i) tap.send(other_frame(kMacB, 60 + static_cast<std::size_t>(i)));
  std::size_t sent = 0;
  EXPECT_EQ(link.forward(sender, 3, sent), 3u);
  EXPECT_EQ(sent, 3u);
  EXPECT_TRUE(link.has_input());
  EXPECT_EQ(link.forward(sender, 3, sent), 3u);  // two frames, then the look that finds nothing
  EXPECT_EQ(sent, 2u);
  EXPECT_FALSE(link.has_input());
  EXPECT_EQ(link.forward(sender, 3, sent), 0u);
  EXPECT_EQ(counters.get(Counter::netdev_tx_frames), 5u);
  std::array<engine::RxFrame, 8> burst;
  ASSERT_EQ(receiver.receive(burst), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(burst[i].bytes().size(), 60 + i);
  receiver.release_received(std::span(burst).first(5));
}

TEST(HostLink, AFullPortLeavesFramesWithTheKernel) {
  fabric::Wire wire(2);
  fabric::Attachment& end = wire.attach(kMacA);
  WirePort sender(end);
  CounterBlock counters;
  const Tap tap;
  HostLink link(tap.tap, counters);
  tap.send(other_frame(kMacB));
  const auto first = sender.allocate(64);
  const auto second = sender.allocate(64);
  ASSERT_TRUE(first && second);
  std::size_t sent = 0;
  EXPECT_EQ(link.forward(sender, 8, sent), 0u);
  EXPECT_TRUE(link.has_input());
  sender.discard(*first);
  (void)link.forward(sender, 8, sent);
  EXPECT_EQ(sent, 1u);
}

TEST(HostLink, AFrameThatFillsTheBufferIsDroppedAndCounted) {
  fabric::Wire wire;
  fabric::Attachment& end = wire.attach(kMacA);
  WirePort sender(end);
  CounterBlock counters;
  const Tap tap;
  HostLink link(tap.tap, counters);
  const std::size_t before = end.free_slots();
  tap.send(std::vector<std::byte>(fabric::kSlotBytes));
  std::size_t sent = 0;
  (void)link.forward(sender, 8, sent);
  EXPECT_EQ(counters.get(Counter::netdev_dropped_frames), 1u);
  EXPECT_EQ(counters.get(Counter::netdev_tx_frames), 0u);
  EXPECT_EQ(end.free_slots(), before);
}

TEST(HostLink, WhatTheKernelDoesNotTakeIsCounted) {
  CounterBlock counters;
  HostLink link(-1, counters);
  link.deliver(other_frame(kMacA));
  EXPECT_EQ(counters.get(Counter::netdev_dropped_frames), 1u);
  EXPECT_EQ(counters.get(Counter::netdev_rx_frames), 0u);
}

TEST(HostLink, TheKernelGetsWhatIsNotRoceAndControlLearnsNeighbours) {
  Rig rig;
  const Tap tap;
  rig.worker->add_host_link(0, tap.tap);
  rig.worker->start();
  const auto data = other_frame(kMacA, 1000);
  const auto arp = arp_request();
  rig.worker->run([&] { return rig.worker->send_raw(1, data) && rig.worker->send_raw(1, arp); });
  EXPECT_EQ(tap.receive(), data);
  EXPECT_EQ(tap.receive(), arp);
  // Only the second one: the first would be the first notification.
  const auto punted = rig.await<PuntedFrame>();
  ASSERT_TRUE(punted);
  EXPECT_EQ(punted->bytes, arp);
  EXPECT_EQ(rig.counters[0].get(Counter::punted_frames), 1u);
}

TEST(HostLink, ASleepingWorkerIsWokenByTheKernelsFrames) {
  Rig rig;
  const Tap a;
  const Tap b;
  rig.worker->add_host_link(0, a.tap);
  rig.worker->add_host_link(1, b.tap);
  rig.worker->start();
  for (int i = 0; i < 20; ++i) {
    ::poll(nullptr, 0, 2);  // it has gone to sleep
    const auto frame = other_frame(kMacB, 100 + static_cast<std::size_t>(i));
    a.send(frame);
    ASSERT_EQ(b.receive(), frame);
    const auto answer = other_frame(kMacA, 200 + static_cast<std::size_t>(i));
    b.send(answer);
    ASSERT_EQ(a.receive(), answer);
  }
  ::poll(nullptr, 0, 20);
  const auto turns = rig.stat(rig.stats.turns);
  ::poll(nullptr, 0, 50);
  EXPECT_LT(rig.stat(rig.stats.turns) - turns, 10u) << "an idle netdev keeps the worker awake";
  EXPECT_FALSE(a.has_frame());
}

}  // namespace
}  // namespace rocemu::dpdk::test
