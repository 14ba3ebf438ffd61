// A port with a capture before it: sees each frame that is given to the link and each that comes
// from it. The worker puts it in a port's place while a capture runs, so that no capture costs
// nothing. The ICRC is always computed under it: what is captured shall be what a wire would show.
#pragma once

#include <memory>
#include <utility>

#include "dataplane/dpdk/capture.h"
#include "dataplane/dpdk/port.h"

namespace rocemu::dpdk {

class CapturePort final : public Port {
 public:
  /// `now`: the worker's clock, read at each frame.
  CapturePort(std::unique_ptr<Port> port, std::unique_ptr<Capture> capture, const Time& now)
      : port_(std::move(port)), capture_(std::move(capture)), now_(now) {}

  /// Ends the capture; this port is then of no use any more.
  std::pair<std::unique_ptr<Port>, std::unique_ptr<Capture>> dissolve() {
    return {std::move(port_), std::move(capture_)};
  }

  std::optional<engine::TxBuffer> allocate(std::size_t payload_capacity) override {
    return port_->allocate(payload_capacity);
  }
  void transmit(const engine::TxFrame& frame) override {
    capture_->record(now_, CaptureDirection::kOutbound,
                     {frame.buffer.base + frame.headers_start, frame.length});
    port_->transmit(frame);
  }
  void discard(const engine::TxBuffer& buffer) override { port_->discard(buffer); }

  std::size_t receive(std::span<engine::RxFrame> out) override {
    const std::size_t count = port_->receive(out);
    for (const engine::RxFrame& frame : out.first(count)) {
      capture_->record(now_, CaptureDirection::kInbound, frame.bytes());
    }
    return count;
  }
  void release_received(std::span<engine::RxFrame> burst) override {
    port_->release_received(burst);
  }
  bool flush() override { return port_->flush(); }
  bool has_input() const override { return port_->has_input(); }
  bool needs_polling() const override { return port_->needs_polling(); }
  int interrupt_fd() const override { return port_->interrupt_fd(); }
  void arm_interrupt() override { port_->arm_interrupt(); }
  void disarm_interrupt() override { port_->disarm_interrupt(); }
  bool is_link_up() const override { return port_->is_link_up(); }
  void set_admin_up(bool is_up) override { port_->set_admin_up(is_up); }
  wire::MacAddress mac() const override { return port_->mac(); }
  std::uint32_t mtu_bytes() const override { return port_->mtu_bytes(); }
  PortDiscards take_discards() override { return port_->take_discards(); }

 private:
  std::unique_ptr<Port> port_;
  std::unique_ptr<Capture> capture_;
  const Time& now_;
};

}  // namespace rocemu::dpdk
