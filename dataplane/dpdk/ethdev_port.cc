#include "dataplane/dpdk/ethdev_port.h"

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string_view>

#include "rocemu/base/check.h"

namespace rocemu::dpdk {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
constexpr std::uint32_t kMbufs = 8191;
constexpr std::uint16_t kMbufDataBytes =
    128 + 4608;  // mbuf headroom, then as a slot of the built-in wire
constexpr std::uint32_t kMaxMtuBytes = 4200;
constexpr std::size_t kMaxWaiting = 512;
constexpr std::uint16_t kEthernetBytes = 14 + 4;
constexpr std::size_t kMaxReceive = 256;

static_assert(RTE_PKTMBUF_HEADROOM == 128);

class EthdevPort final : public Port {
 public:
  EthdevPort(std::uint16_t port, rte_mempool* pool, const wire::MacAddress& mac,
             std::uint32_t mtu_bytes)
      : port_(port), pool_(pool), mac_(mac), mtu_bytes_(mtu_bytes) {}

  ~EthdevPort() override {
    ::rte_eth_dev_stop(port_);
    ::rte_eth_dev_close(port_);
  }

  std::optional<engine::TxBuffer> allocate(std::size_t payload_capacity) override {
    if (waiting_.size() >= kMaxWaiting) return std::nullopt;
    if (engine::kTxHeadroom + payload_capacity > kMbufDataBytes) return std::nullopt;
    rte_mbuf* mbuf = ::rte_pktmbuf_alloc(pool_);
    if (mbuf == nullptr) return std::nullopt;
    return engine::TxBuffer{static_cast<std::byte*>(mbuf->buf_addr), mbuf->buf_len, mbuf};
  }

  void transmit(const engine::TxFrame& frame) override {
    auto* mbuf = static_cast<rte_mbuf*>(frame.buffer.handle);
    ROCEMU_CHECK(frame.headers_start + frame.length <= mbuf->buf_len);
    mbuf->data_off = frame.headers_start;
    mbuf->data_len = static_cast<std::uint16_t>(frame.length);
    mbuf->pkt_len = frame.length;
    if (!is_admin_up_) {
      ++discards_;
      ::rte_pktmbuf_free(mbuf);
    } else if (std::memcmp(frame.buffer.base + frame.headers_start, mac_.data(), mac_.size()) ==
               0) {
      loopback_.push_back(mbuf);
    } else {
      waiting_.push_back(mbuf);
    }
  }

  void discard(const engine::TxBuffer& buffer) override {
    ::rte_pktmbuf_free(static_cast<rte_mbuf*>(buffer.handle));
  }

  std::size_t receive(std::span<engine::RxFrame> out) override {
    const std::size_t room = std::min(out.size(), kMaxReceive);
    std::size_t count = 0;
    while (count < room && !loopback_.empty()) {
      burst_[count++] = loopback_.front();
      loopback_.pop_front();
    }
    count += ::rte_eth_rx_burst(port_, 0, burst_.data() + count,
                                static_cast<std::uint16_t>(room - count));
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      rte_mbuf* mbuf = burst_[i];
      if (!is_admin_up_ || (mbuf->nb_segs > 1 && ::rte_pktmbuf_linearize(mbuf) != 0)) {
        ++discards_;
        ::rte_pktmbuf_free(mbuf);
        continue;
      }
      burst_[kept] = mbuf;
      out[kept++] =
          engine::RxFrame({rte_pktmbuf_mtod(mbuf, const std::byte*), mbuf->data_len}, mbuf,
                          [](void* handle) { ::rte_pktmbuf_free(static_cast<rte_mbuf*>(handle)); });
    }
    return kept;
  }

  void release_received(std::span<engine::RxFrame> burst) override {
    for (std::size_t i = 0; i < burst.size(); ++i) {
      if (!burst[i].is_taken()) ::rte_pktmbuf_free(burst_[i]);
    }
  }

  bool flush() override {
    while (!waiting_.empty()) {
      std::array<rte_mbuf*, 32> batch;
      const std::size_t count = std::min(waiting_.size(), batch.size());
      std::copy_n(waiting_.begin(), count, batch.begin());
      const std::uint16_t sent =
          ::rte_eth_tx_burst(port_, 0, batch.data(), static_cast<std::uint16_t>(count));
      waiting_.erase(waiting_.begin(), waiting_.begin() + sent);
      if (sent < count) return false;
    }
    return true;
  }

  bool has_input() const override { return !loopback_.empty(); }
  bool needs_polling() const override { return true; }

  bool is_link_up() const override {
    rte_eth_link link{};
    if (::rte_eth_link_get_nowait(port_, &link) != 0) return is_admin_up_;
    return is_admin_up_ && link.link_status != 0;
  }
  void set_admin_up(bool is_up) override { is_admin_up_ = is_up; }
  wire::MacAddress mac() const override { return mac_; }
  std::uint32_t mtu_bytes() const override { return mtu_bytes_; }
  PortDiscards take_discards() override { return {.sent = std::exchange(discards_, 0)}; }

 private:
  std::uint16_t port_;
  rte_mempool* pool_;
  wire::MacAddress mac_;
  std::uint32_t mtu_bytes_;
  bool is_admin_up_ = true;
  std::uint64_t discards_ = 0;
  std::deque<rte_mbuf*> waiting_;
  std::deque<rte_mbuf*> loopback_;
  std::array<rte_mbuf*, kMaxReceive> burst_{};
};

Error failed(const std::string& name, const char* what, int error) {
  return {error < 0 ? -error : EIO,
          "port " + name + ": " + what + ": " + ::rte_strerror(error < 0 ? -error : error)};
}

bool is_memif(const rte_eth_dev_info& info) {
  return std::string_view(info.driver_name) == "net_memif";
}

// A memif client starts only when its server listens: two daemons may be started in any order.
int start_port(std::uint16_t port, const rte_eth_dev_info& info) {
  constexpr int kTries = 50;
  constexpr useconds_t kPauseMicroseconds = 100'000;
  int error = ::rte_eth_dev_start(port);
  for (int i = 1; error != 0 && is_memif(info) && i < kTries; ++i) {
    ::usleep(kPauseMicroseconds);
    error = ::rte_eth_dev_start(port);
  }
  return error;
}

// The MTU that the device may be configured with: some drivers state a frame length that is smaller
// than what they carry.
std::uint32_t configurable_mtu(const EthdevConfig& config, const rte_eth_dev_info& info) {
  std::uint32_t mtu = config.mtu_bytes != 0 ? config.mtu_bytes : kMaxMtuBytes;
  if (info.max_mtu != 0) mtu = std::min<std::uint32_t>(mtu, info.max_mtu);
  if (info.max_rx_pktlen > kEthernetBytes) {
    mtu = std::min(mtu, info.max_rx_pktlen - kEthernetBytes);
  }
  return std::max<std::uint32_t>(mtu, info.min_mtu);
}

// The MTU that the link carries, after the device was configured.
std::uint32_t link_mtu(std::uint16_t port, const EthdevConfig& config,
                       const rte_eth_dev_info& info) {
  const std::uint32_t wanted = config.mtu_bytes != 0 ? config.mtu_bytes : kMaxMtuBytes;
  // A frame spans as many of memif's buffers as it needs, whatever the driver states.
  if (is_memif(info)) return std::min(wanted, kMaxMtuBytes);
  const std::uint32_t settable = std::min(wanted, configurable_mtu(config, info));
  if (settable == wanted &&
      ::rte_eth_dev_set_mtu(port, static_cast<std::uint16_t>(settable)) == 0) {
    return settable;
  }
  // Devices that cannot change it carry what their link carries: the operator knows, or the driver.
  std::uint16_t current = 1500;
  (void)::rte_eth_dev_get_mtu(port, &current);
  return std::min<std::uint32_t>(config.mtu_bytes != 0 ? config.mtu_bytes : current, kMaxMtuBytes);
}

}  // namespace

Result<std::unique_ptr<Port>> make_ethdev_port(const EthdevConfig& config) {
  std::uint16_t port = 0;
  if (::rte_eth_dev_get_port_by_name(config.name.c_str(), &port) != 0) {
    return Error{ENODEV, "there is no DPDK port " + config.name};
  }
  rte_eth_dev_info info{};
  if (const int error = ::rte_eth_dev_info_get(port, &info); error != 0) {
    return failed(config.name, "no device information", error);
  }
  rte_mempool* pool = ::rte_pktmbuf_pool_create(("rocemu_" + std::to_string(port)).c_str(), kMbufs,
                                                256, 0, kMbufDataBytes, SOCKET_ID_ANY);
  if (pool == nullptr) return failed(config.name, "no memory for frames", -rte_errno);
  rte_eth_conf settings{};
  settings.rxmode.mtu = configurable_mtu(config, info);
  if (const int error = ::rte_eth_dev_configure(port, 1, 1, &settings); error != 0) {
    return failed(config.name, "cannot be configured", error);
  }
  std::uint16_t rx = kDescriptors;
  std::uint16_t tx = kDescriptors;
  (void)::rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
  if (const int error = ::rte_eth_rx_queue_setup(port, 0, rx, SOCKET_ID_ANY, nullptr, pool);
      error != 0) {
    return failed(config.name, "no receive queue", error);
  }
  if (const int error = ::rte_eth_tx_queue_setup(port, 0, tx, SOCKET_ID_ANY, nullptr); error != 0) {
    return failed(config.name, "no transmit queue", error);
  }
  rte_ether_addr address{};
  (void)::rte_eth_macaddr_get(port, &address);
  wire::MacAddress mac;
  std::copy_n(address.addr_bytes, mac.size(), mac.begin());
  if (config.mac && *config.mac != mac) {
    mac = *config.mac;
    std::copy_n(mac.begin(), mac.size(), address.addr_bytes);
    // A device that keeps its own address receives for ours when it takes everything.
    if (::rte_eth_dev_default_mac_addr_set(port, &address) != 0) {
      (void)::rte_eth_promiscuous_enable(port);
    }
  }
  if (const int error = start_port(port, info); error != 0) {
    return failed(config.name, is_memif(info) ? "no memif server answers" : "does not start",
                  error);
  }
  (void)::rte_eth_allmulticast_enable(port);
  return std::unique_ptr<Port>(
      std::make_unique<EthdevPort>(port, pool, mac, link_mtu(port, config, info)));
}

}  // namespace rocemu::dpdk
