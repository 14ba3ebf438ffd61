// The port: mbufs out and in. Setting a device up is ethdev_setup.cc.
#include "dataplane/dpdk/ethdev_port_impl.h"

#include <rte_alarm.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <cstring>
#include <semaphore>
#include <utility>

#include "rocemu/base/check.h"

namespace rocemu::dpdk {
namespace {

void release_mbuf(void* handle) { ::rte_pktmbuf_free(static_cast<rte_mbuf*>(handle)); }

// Keeps EAL's interrupt thread still while it lives. The memif driver of 22.11 ends a connection
// there when the peer goes, without a lock against the same in rte_eth_dev_close(): two ends that
// close at once would free twice.
class InterruptThreadHold {
 public:
  InterruptThreadHold() : is_held_(::rte_eal_alarm_set(1, &hold, this) == 0) {
    if (is_held_) entered_.acquire();
  }
  ~InterruptThreadHold() {
    if (!is_held_) return;
    leave_.release();
    left_.acquire();
  }
  InterruptThreadHold(const InterruptThreadHold&) = delete;
  InterruptThreadHold& operator=(const InterruptThreadHold&) = delete;

 private:
  static void hold(void* self) {
    auto* me = static_cast<InterruptThreadHold*>(self);
    me->entered_.release();
    me->leave_.acquire();
    me->left_.release();
  }

  std::binary_semaphore entered_{0};
  std::binary_semaphore leave_{0};
  std::binary_semaphore left_{0};
  bool is_held_;
};

}  // namespace

EthdevPort::~EthdevPort() {
  const InterruptThreadHold hold;
  drop(waiting_);
  drop(loopback_);
  (void)::rte_eth_dev_stop(port_);
  (void)::rte_eth_dev_close(port_);
  ::rte_mempool_free(pool_);
}

std::optional<engine::TxBuffer> EthdevPort::allocate(std::size_t payload_capacity) {
  if (lent_ + waiting_.size() + loopback_.size() >= kMaxWaiting) return std::nullopt;
  if (engine::kTxHeadroom + payload_capacity > kMbufDataBytes) return std::nullopt;
  rte_mbuf* mbuf = ::rte_pktmbuf_alloc(pool_);
  if (mbuf == nullptr) return std::nullopt;
  ++lent_;
  return engine::TxBuffer{static_cast<std::byte*>(mbuf->buf_addr), mbuf->buf_len, mbuf};
}

void EthdevPort::transmit(const engine::TxFrame& frame) {
  auto* mbuf = static_cast<rte_mbuf*>(frame.buffer.handle);
  ROCEMU_CHECK(frame.headers_start + std::size_t{frame.length} <= mbuf->buf_len);
  --lent_;
  mbuf->data_off = frame.headers_start;
  mbuf->data_len = static_cast<std::uint16_t>(frame.length);
  mbuf->pkt_len = frame.length;
  if (!is_admin_up_ || frame.length < kEthernetHeaderBytes) {
    ++discards_.sent;
    ::rte_pktmbuf_free(mbuf);
    return;
  }
  const std::byte* destination = frame.buffer.base + frame.headers_start;
  const bool is_own = std::memcmp(destination, mac_.data(), mac_.size()) == 0;
  (is_own ? loopback_ : waiting_).push(mbuf);
}

void EthdevPort::discard(const engine::TxBuffer& buffer) {
  --lent_;
  release_mbuf(buffer.handle);
}

bool EthdevPort::flush() {
  while (!waiting_.is_empty()) {
    const auto batch = waiting_.front();
    const auto count = static_cast<std::uint16_t>(std::min(batch.size(), kMaxReceive));
    const std::uint16_t sent = ::rte_eth_tx_burst(port_, 0, batch.data(), count);
    waiting_.pop(sent);
    if (sent == count) continue;
    if (has_carrier()) return false;
    // Nobody is there to make room: lost, as on a cable that is not plugged in.
    drop(waiting_);
  }
  return true;
}

std::size_t EthdevPort::receive(std::span<engine::RxFrame> out) {
  const std::size_t room = std::min(out.size(), kMaxReceive);
  std::size_t count = 0;
  while (count < room && !loopback_.is_empty()) {
    burst_[count++] = loopback_.front()[0];
    loopback_.pop(1);
  }
  count +=
      ::rte_eth_rx_burst(port_, 0, burst_.data() + count, static_cast<std::uint16_t>(room - count));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    rte_mbuf* mbuf = burst_[i];
    if (!accept(*mbuf)) {
      ::rte_pktmbuf_free(mbuf);
      continue;
    }
    burst_[kept] = mbuf;
    out[kept++] = engine::RxFrame({rte_pktmbuf_mtod(mbuf, const std::byte*), mbuf->data_len}, mbuf,
                                  &release_mbuf);
  }
  return kept;
}

// Ours, and in one piece. Frames to somebody else, which a promiscuous device shows, were never for
// this port: they are not counted.
bool EthdevPort::accept(rte_mbuf& mbuf) {
  if (!is_admin_up_) {
    ++discards_.received_down;
    return false;
  }
  if (mbuf.nb_segs > 1 && ::rte_pktmbuf_linearize(&mbuf) != 0) {
    ++discards_.received_too_long;
    return false;
  }
  if (mbuf.data_len < kEthernetHeaderBytes) return true;  // counted by who parses it
  const auto* destination = rte_pktmbuf_mtod(&mbuf, const std::byte*);
  const bool is_group = (destination[0] & std::byte{1}) != std::byte{0};
  return is_group || std::memcmp(destination, mac_.data(), mac_.size()) == 0;
}

void EthdevPort::release_received(std::span<engine::RxFrame> burst) {
  for (std::size_t i = 0; i < burst.size(); ++i) {
    if (!burst[i].is_taken()) ::rte_pktmbuf_free(burst_[i]);
  }
}

void EthdevPort::arm_interrupt() {
  if (interrupt_fd_ >= 0) (void)::rte_eth_dev_rx_intr_enable(port_, 0);
}

void EthdevPort::disarm_interrupt() {
  if (interrupt_fd_ >= 0) (void)::rte_eth_dev_rx_intr_disable(port_, 0);
}

bool EthdevPort::has_carrier() const {
  rte_eth_link link{};
  // A driver that cannot tell has a link that is always there.
  return ::rte_eth_link_get_nowait(port_, &link) != 0 || link.link_status != 0;
}

void EthdevPort::set_admin_up(bool is_up) {
  is_admin_up_ = is_up;
  if (is_up) return;
  drop(waiting_);
  drop(loopback_);
}

void EthdevPort::drop(MbufQueue& queue) {
  while (!queue.is_empty()) {
    const auto batch = queue.front();
    for (rte_mbuf* mbuf : batch) ::rte_pktmbuf_free(mbuf);
    discards_.sent += batch.size();
    queue.pop(batch.size());
  }
}

PortDiscards EthdevPort::take_discards() { return std::exchange(discards_, {}); }

}  // namespace rocemu::dpdk
