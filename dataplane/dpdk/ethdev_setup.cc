// Sets an ethdev up, whatever its driver makes of it: what drivers refuse is asked for in another
// way, what they understate is asked of the system.
#include <net/if.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/ethdev_port_impl.h"

namespace rocemu::dpdk {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
constexpr std::uint32_t kMbufs = 8191;
constexpr std::uint32_t kMbufCache = 256;
constexpr auto kAnySocket = static_cast<unsigned>(SOCKET_ID_ANY);
constexpr std::uint32_t kMaxMtuBytes = 4200;  // 4096 of payload and all headers
constexpr std::uint32_t kFrameOverheadBytes = 14 + 4;

static_assert(RTE_PKTMBUF_HEADROOM == kMbufHeadroomBytes);
static_assert(engine::kTxHeadroom == kMbufHeadroomBytes);
static_assert(sizeof(rte_mbuf) % 64 == 0 && kMbufDataBytes % 64 == 0);

Error failed(const std::string& name, const char* what, int error) {
  const int code = error < 0 ? -error : error > 0 ? error : EIO;
  return {code, "port " + name + ": " + what + ": " + ::rte_strerror(code)};
}

// A Linux interface that the driver only looks at: its address, its MTU are the system's.
bool is_guest_of_interface(const rte_eth_dev_info& info) {
  const std::string_view driver(info.driver_name);
  return driver == "net_af_packet" || driver == "net_af_xdp";
}

std::uint32_t wanted_mtu(const EthdevConfig& config) {
  return config.mtu_bytes != 0 ? std::min(config.mtu_bytes, kMaxMtuBytes) : kMaxMtuBytes;
}

// The MTU that the device may be configured with: some drivers state a frame length that is smaller
// than what they carry.
std::uint32_t configurable_mtu(const EthdevConfig& config, const rte_eth_dev_info& info) {
  std::uint32_t mtu = wanted_mtu(config);
  if (info.max_mtu != 0) mtu = std::min<std::uint32_t>(mtu, info.max_mtu);
  if (info.max_rx_pktlen > kFrameOverheadBytes) {
    mtu = std::min(mtu, info.max_rx_pktlen - kFrameOverheadBytes);
  }
  return std::max<std::uint32_t>(mtu, info.min_mtu);
}

// Asks the system for an interface's MTU, having it set to `wanted` first when that is not 0.
std::uint32_t interface_mtu(unsigned index, std::uint32_t wanted, std::uint32_t otherwise) {
  ifreq request{};
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return otherwise;
  bool is_known = ::if_indextoname(index, request.ifr_name) != nullptr;
  if (is_known && wanted != 0) {
    request.ifr_mtu = static_cast<int>(wanted);
    (void)::ioctl(fd, SIOCSIFMTU, &request);
  }
  is_known = is_known && ::ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0;
  ::close(fd);
  return is_known ? static_cast<std::uint32_t>(request.ifr_mtu) : otherwise;
}

// The MTU that the link carries, after the device was configured.
std::uint32_t link_mtu(std::uint16_t port, const EthdevConfig& config,
                       const rte_eth_dev_info& info) {
  const std::uint32_t wanted = wanted_mtu(config);
  // A frame spans as many of memif's buffers as it needs, whatever the driver states.
  if (std::string_view(info.driver_name) == "net_memif") return wanted;
  std::uint16_t current = 1500;
  (void)::rte_eth_dev_get_mtu(port, &current);
  if (is_guest_of_interface(info)) {
    return std::min(wanted, interface_mtu(info.if_index, 0, current));
  }
  const std::uint32_t settable = std::min(wanted, configurable_mtu(config, info));
  const bool is_set = ::rte_eth_dev_set_mtu(port, static_cast<std::uint16_t>(settable)) == 0;
  if (is_set && settable == wanted) return wanted;
  // The interface of a tap carries more than its driver lets itself be asked for.
  if (info.if_index != 0) return std::min(wanted, interface_mtu(info.if_index, wanted, current));
  if (is_set) return settable;
  // A device that cannot change it carries what its link carries: the operator knows, or the
  // driver.
  return config.mtu_bytes != 0 ? wanted : std::min<std::uint32_t>(current, kMaxMtuBytes);
}

int configure(std::uint16_t port, const EthdevConfig& config, const rte_eth_dev_info& info) {
  rte_eth_conf settings{};
  settings.rxmode.mtu = configurable_mtu(config, info);
  settings.intr_conf.rxq = 1;
  if (::rte_eth_dev_configure(port, 1, 1, &settings) == 0) return 0;
  settings.intr_conf.rxq = 0;
  return ::rte_eth_dev_configure(port, 1, 1, &settings);
}

wire::MacAddress choose_mac(std::uint16_t port, const EthdevConfig& config,
                            const rte_eth_dev_info& info) {
  rte_ether_addr address{};
  (void)::rte_eth_macaddr_get(port, &address);
  wire::MacAddress mac;
  std::copy_n(address.addr_bytes, mac.size(), mac.begin());
  if (!config.mac || *config.mac == mac) return mac;
  mac = *config.mac;
  std::copy_n(mac.begin(), mac.size(), address.addr_bytes);
  // A device that keeps its address, or whose address is the system's, receives for ours when it
  // takes everything.
  if (is_guest_of_interface(info) || ::rte_eth_dev_default_mac_addr_set(port, &address) != 0) {
    (void)::rte_eth_promiscuous_enable(port);
  }
  return mac;
}

bool is_tap(const rte_eth_dev_info& info) {
  return std::string_view(info.driver_name) == "net_tap";
}

// A descriptor that tells of received frames; -1 where the driver has none.
int find_interrupt(std::uint16_t port, const rte_eth_dev_info& info) {
  // A tap's needs no switching on; others that cannot be switched tell nothing.
  if (!is_tap(info) && ::rte_eth_dev_rx_intr_enable(port, 0) != 0) return -1;
  const auto level = static_cast<std::uint32_t>(::rte_log_get_global_level());
  ::rte_log_set_global_level(RTE_LOG_CRIT);  // to have none is no error
  const int fd = ::rte_eth_dev_rx_intr_ctl_q_get_fd(port, 0);
  ::rte_log_set_global_level(level);
  if (!is_tap(info)) (void)::rte_eth_dev_rx_intr_disable(port, 0);
  return fd;
}

}  // namespace

Result<void> EthdevPort::set_up(const EthdevConfig& config) {
  rte_eth_dev_info info{};
  if (const int error = ::rte_eth_dev_info_get(port_, &info); error != 0) {
    return failed(config.name, "no device information", error);
  }
  if (const int error = configure(port_, config, info); error != 0) {
    return failed(config.name, "cannot be configured", error);
  }
  std::uint16_t rx = kDescriptors;
  std::uint16_t tx = kDescriptors;
  (void)::rte_eth_dev_adjust_nb_rx_tx_desc(port_, &rx, &tx);
  if (const int error = ::rte_eth_rx_queue_setup(port_, 0, rx, kAnySocket, nullptr, pool_);
      error != 0) {
    return failed(config.name, "no receive queue", error);
  }
  if (const int error = ::rte_eth_tx_queue_setup(port_, 0, tx, kAnySocket, nullptr); error != 0) {
    return failed(config.name, "no transmit queue", error);
  }
  mac_ = choose_mac(port_, config, info);
  if (const int error = ::rte_eth_dev_start(port_); error != 0) {
    return failed(config.name, "does not start", error);
  }
  (void)::rte_eth_allmulticast_enable(port_);
  mtu_bytes_ = link_mtu(port_, config, info);
  interrupt_fd_ = find_interrupt(port_, info);
  // The tap driver looks for frames only after a signal that some other thread takes, perhaps after
  // its descriptor told of them.
  is_interrupt_a_hint_ = is_tap(info);
  return {};
}

Result<std::unique_ptr<Port>> make_ethdev_port(const EthdevConfig& config) {
  std::uint16_t id = 0;
  if (!is_eal_running() || ::rte_eth_dev_get_port_by_name(config.name.c_str(), &id) != 0) {
    return Error{ENODEV, "there is no DPDK port " + config.name};
  }
  const std::string pool_name = "rocemu_" + std::to_string(id);
  rte_mempool* pool = ::rte_pktmbuf_pool_create(pool_name.c_str(), kMbufs, kMbufCache, 0,
                                                kMbufDataBytes, SOCKET_ID_ANY);
  if (pool == nullptr) return failed(config.name, "no memory for frames", rte_errno);
  auto port = std::make_unique<EthdevPort>(id, pool);
  if (auto done = port->set_up(config); !done) return done.error();
  return std::unique_ptr<Port>(std::move(port));
}

}  // namespace rocemu::dpdk
