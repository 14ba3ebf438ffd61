// A device's attachment to its link, as the worker sees it: a FrameSink for output, bursts of
// RxFrame for input. Implementations: the built-in wire (dataplane/fabric) and DPDK ethdevs; a
// capture stands before either. All calls come from the worker's thread, or from control before the
// worker starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/engine/frame.h"
#include "dataplane/wire/headers.h"

namespace rocemu::dpdk {

/// Frames that this end did not carry.
struct PortDiscards {
  std::uint64_t sent = 0;               ///< Given by transmit(): link down, or nothing free.
  std::uint64_t received_down = 0;      ///< Arrived while the link was administratively down.
  std::uint64_t received_too_long = 0;  ///< Arrived longer than a frame buffer.
};

class Port : public engine::FrameSink {
 public:
  /// Receives up to out.size() frames; they stay valid until release_received(), which follows each
  /// call that returned any.
  virtual std::size_t receive(std::span<engine::RxFrame> out) = 0;
  /// Gives back the buffers of the last burst that were not taken.
  virtual void release_received(std::span<engine::RxFrame> burst) = 0;
  /// Pushes queued output to the link. Returns false while some could not be sent yet.
  virtual bool flush() = 0;
  /// Frames wait to be received right now (a cheap look before the worker sleeps).
  virtual bool has_input() const = 0;

  /// True when frames may arrive while the worker sleeps and nothing wakes it: it then looks
  /// again after a back-off.
  virtual bool needs_polling() const = 0;
  /// Readable when frames arrive after arm_interrupt(); -1: the port has no such descriptor. With
  /// needs_polling() true, too, it only tells when polling is worth it.
  virtual int interrupt_fd() const { return -1; }
  /// Before the worker sleeps: it receives once more after this, so that nothing is missed.
  virtual void arm_interrupt() {}
  /// After it woke.
  virtual void disarm_interrupt() {}

  virtual bool is_link_up() const = 0;
  virtual void set_admin_up(bool is_up) = 0;  ///< Down: input and output are dropped and counted.
  virtual wire::MacAddress mac() const = 0;
  /// Largest Ethernet payload (IP packet) that the link carries.
  virtual std::uint32_t mtu_bytes() const = 0;
  /// What was discarded since the last call.
  virtual PortDiscards take_discards() = 0;
};

}  // namespace rocemu::dpdk
