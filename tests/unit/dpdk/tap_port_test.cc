// A port with a receive interrupt: a tap in a network namespace of the test's own. Needs the right
// to make one and /dev/net/tun; else skipped.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/ethdev_port.h"
#include "tests/unit/dpdk/frames.h"
#include "tests/unit/dpdk/rig.h"

namespace rocemu::dpdk::test {
namespace {

constexpr const char* kInterface = "rocemutap0";
constexpr wire::MacAddress kOwn = {2, 0, 0, 0, 0, 9};

/// The system's end of the tap.
class Host {
 public:
  Host() : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    to_.sll_family = AF_PACKET;
    to_.sll_ifindex = static_cast<int>(::if_nametoindex(kInterface));
  }
  ~Host() { ::close(fd_); }
  bool send(const std::vector<std::byte>& frame) {
    return ::sendto(fd_, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to_),
                    sizeof to_) == static_cast<ssize_t>(frame.size());
  }
  int mtu() {
    ifreq request{};
    std::strcpy(request.ifr_name, kInterface);
    return ::ioctl(fd_, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : -1;
  }

 private:
  int fd_;
  sockaddr_ll to_{};
};

TEST(TapPort, ASleepingWorkerIsWokenByFrames) {
  WorkerBlock stats;
  CounterBlock counters;
  memory::PlainPort memory;
  memory::MrTable regions(16, Prng(1));
  WorkerConfig config;
  config.max_poll_interval = seconds(100);  // polling alone would fail the test
  Worker worker(config, stats);
  auto port = make_ethdev_port({.name = "net_tap0", .mac = kOwn});
  ASSERT_TRUE(port.ok()) << port.error().text;
  EXPECT_GE((*port)->interrupt_fd(), 0);
  EXPECT_EQ((*port)->mtu_bytes(), 4200u);
  Host host;
  EXPECT_EQ(host.mtu(), 4200);
  engine::EngineConfig engine;
  engine.limits = {.max_qps = 64, .max_cqs = 16, .max_srqs = 1};
  worker.add_device(std::move(port).value(), engine, memory, regions, counters, Prng(1));
  worker.start();
  const auto frame = other_frame(kOwn, 60);
  for (std::size_t n = 0; n < 200; ++n) {
    ASSERT_TRUE(host.send(frame)) << std::strerror(errno);
    bool has_come = false;
    ASSERT_TRUE(eventually([&] {
      while (auto next = worker.next_notification()) {
        // The system's own traffic on the interface comes here, too.
        auto* found = std::get_if<PuntedFrame>(&*next);
        has_come |= found != nullptr && found->bytes == frame;
      }
      return has_come;
    })) << n;
  }
  worker.stop();
}

}  // namespace
}  // namespace rocemu::dpdk::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    std::printf("skipped: no right to make a network namespace: %s\n", std::strerror(errno));
    return 77;
  }
  if (::access("/dev/net/tun", R_OK | W_OK) != 0) {
    std::printf("skipped: /dev/net/tun: %s\n", std::strerror(errno));
    return 77;
  }
  const auto started =
      rocemu::dpdk::start_eal({"--no-huge", "--vdev", "net_tap0,iface=rocemutap0"});
  if (!started) {
    std::printf("failed: %s\n", started.error().text.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
