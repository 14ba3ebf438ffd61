// A device's attachment to its link, as the worker sees it: a FrameSink for output, bursts of
// RxFrame for input. Implementations: the built-in wire (dataplane/fabric) and DPDK ethdevs. All
// calls come from the worker's thread, except those marked otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/engine/frame.h"
#include "dataplane/wire/headers.h"

namespace rocemu::dpdk {

class Port : public engine::FrameSink {
 public:
  /// Receives up to out.size() frames; they stay valid until the next call or release_received().
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

  virtual bool is_link_up() const = 0;
  virtual void set_admin_up(bool is_up) = 0;  ///< Down: input and output are dropped and counted.
  virtual wire::MacAddress mac() const = 0;
  /// Largest Ethernet payload (IP packet) that the link carries.
  virtual std::uint32_t mtu_bytes() const = 0;
  /// Frames that this end dropped (link down, nothing free) since the last call.
  virtual std::uint64_t take_discards() = 0;
};

}  // namespace rocemu::dpdk
