// The worker's end of a device's netdev: a TAP interface whose other end is the kernel's network
// stack. What the link brings that is not RoCE is written into it, what the kernel sends is read
// from it, straight into the port's buffers. The kernel takes and gives one frame a call, so each
// direction is bounded a turn by its burst, and every call is counted. Worker's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/dpdk/port.h"
#include "rocemu/abi/counters.h"

namespace rocemu::dpdk {

class HostLink {
 public:
  /// `fd`: of the TAP, O_NONBLOCK, frames without any header before them. It stays the caller's and
  /// open for longer than this object.
  HostLink(int fd, CounterBlock& counters) : fd_(fd), counters_(counters) {}

  int fd() const { return fd_; }
  /// The descriptor's edge was seen, or may have been.
  void look_again() { may_have_input_ = true; }
  /// Frames may wait to be read.
  bool has_input() const { return may_have_input_; }

  /// Gives a frame to the kernel; one that it does not take (the interface is down) is counted.
  void deliver(std::span<const std::byte> frame);
  /// Sends up to `budget` frames of the kernel on `port`. Returns the reads that it took; `sent` is
  /// how many frames there were. Stops while the port has no buffer: has_input() then stays true.
  std::size_t forward(Port& port, std::size_t budget, std::size_t& sent);

 private:
  int fd_;
  CounterBlock& counters_;
  bool may_have_input_ = true;
};

}  // namespace rocemu::dpdk
