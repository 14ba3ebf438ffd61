// The port over an ethdev, as its set-up (ethdev_setup.cc) and its packet path (ethdev_port.cc) see
// it. Owns the device and its pool from the moment that it is made, configured or not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/dpdk/ethdev_port.h"
#include "rocemu/base/check.h"

struct rte_mbuf;
struct rte_mempool;

namespace rocemu::dpdk {

inline constexpr std::uint16_t kMbufHeadroomBytes = 128;
/// The headroom, then as a slot of the built-in wire; a multiple of 64, so that all are aligned.
inline constexpr std::uint16_t kMbufDataBytes = kMbufHeadroomBytes + 4608;
inline constexpr std::size_t kMaxReceive = 256;
/// Frames of ours that the device has not taken; beyond it allocate() gives nothing.
inline constexpr std::size_t kMaxWaiting = 512;
inline constexpr std::uint32_t kEthernetHeaderBytes = 14;

/// Frames in order; room for kMaxWaiting.
class MbufQueue {
 public:
  std::size_t size() const { return tail_ - head_; }
  bool is_empty() const { return head_ == tail_; }
  void push(rte_mbuf* mbuf) {
    ROCEMU_CHECK(size() < kMaxWaiting);
    slots_[tail_++ % kMaxWaiting] = mbuf;
  }
  /// The oldest frames that lie side by side.
  std::span<rte_mbuf*> front() {
    const std::size_t begin = head_ % kMaxWaiting;
    const std::size_t count = size() < kMaxWaiting - begin ? size() : kMaxWaiting - begin;
    return {slots_.data() + begin, count};
  }
  void pop(std::size_t count) { head_ += count; }

 private:
  std::array<rte_mbuf*, kMaxWaiting> slots_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

class EthdevPort final : public Port {
 public:
  EthdevPort(std::uint16_t port, rte_mempool* pool) : port_(port), pool_(pool) {}
  ~EthdevPort() override;

  /// Configures and starts the device.
  Result<void> set_up(const EthdevConfig& config);

  std::optional<engine::TxBuffer> allocate(std::size_t payload_capacity) override;
  void transmit(const engine::TxFrame& frame) override;
  void discard(const engine::TxBuffer& buffer) override;

  std::size_t receive(std::span<engine::RxFrame> out) override;
  void release_received(std::span<engine::RxFrame> burst) override;
  bool flush() override;
  bool has_input() const override { return !loopback_.is_empty(); }
  bool needs_polling() const override { return interrupt_fd_ < 0 || is_interrupt_a_hint_; }
  int interrupt_fd() const override { return interrupt_fd_; }
  void arm_interrupt() override;
  void disarm_interrupt() override;

  bool is_link_up() const override { return is_admin_up_ && has_carrier(); }
  void set_admin_up(bool is_up) override;
  wire::MacAddress mac() const override { return mac_; }
  std::uint32_t mtu_bytes() const override { return mtu_bytes_; }
  PortDiscards take_discards() override;

 private:
  bool accept(rte_mbuf& mbuf);
  bool has_carrier() const;
  void drop(MbufQueue& queue);

  std::uint16_t port_;
  rte_mempool* pool_;
  wire::MacAddress mac_{};
  std::uint32_t mtu_bytes_ = 0;
  int interrupt_fd_ = -1;
  bool is_interrupt_a_hint_ = false;  ///< Frames may be seen only some time after it.
  bool is_admin_up_ = true;
  std::size_t lent_ = 0;  ///< Buffers between allocate() and transmit() or discard().
  PortDiscards discards_;
  MbufQueue waiting_;
  MbufQueue loopback_;
  std::array<rte_mbuf*, kMaxReceive> burst_{};
};

}  // namespace rocemu::dpdk
