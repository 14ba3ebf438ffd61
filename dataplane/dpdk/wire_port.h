// Port over an attachment of the built-in wire. Needs neither DPDK nor any right.
#pragma once

#include "dataplane/dpdk/port.h"
#include "dataplane/fabric/wire.h"

namespace rocemu::dpdk {

class WirePort final : public Port {
 public:
  explicit WirePort(fabric::Attachment& attachment) : attachment_(attachment) {}

  engine::SinkCapabilities capabilities() const override {
    return {.takes_references = false, .elides_icrc = true};
  }
  std::optional<engine::TxBuffer> allocate(std::size_t payload_capacity) override {
    if (engine::kTxHeadroom + payload_capacity > fabric::kSlotBytes) return std::nullopt;
    return attachment_.allocate();
  }
  void transmit(const engine::TxFrame& frame) override { attachment_.transmit(frame); }
  void discard(const engine::TxBuffer& buffer) override { attachment_.discard(buffer); }

  std::size_t receive(std::span<engine::RxFrame> out) override { return attachment_.receive(out); }
  void release_received(std::span<engine::RxFrame> burst) override { attachment_.release(burst); }
  bool flush() override { return true; }
  bool has_input() const override { return attachment_.has_input(); }
  bool needs_polling() const override { return false; }
  bool is_link_up() const override { return attachment_.is_up(); }
  void set_admin_up(bool is_up) override { attachment_.set_up(is_up); }
  wire::MacAddress mac() const override { return attachment_.mac(); }
  std::uint32_t mtu_bytes() const override { return fabric::kWireMtuBytes; }
  PortDiscards take_discards() override {
    const fabric::WireDiscards& total = attachment_.discards();
    const PortDiscards fresh{.sent = total.sent - reported_.sent,
                             .received_down = total.received - reported_.received};
    reported_ = total;
    return fresh;
  }

 private:
  fabric::Attachment& attachment_;
  fabric::WireDiscards reported_;
};

}  // namespace rocemu::dpdk
