#include "dataplane/dpdk/host_link.h"

#include <unistd.h>

#include <cerrno>

namespace rocemu::dpdk {

void HostLink::deliver(std::span<const std::byte> frame) {
  const bool is_taken =
      ::write(fd_, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
  counters_.add(is_taken ? Counter::netdev_rx_frames : Counter::netdev_dropped_frames);
}

std::size_t HostLink::forward(Port& port, std::size_t budget, std::size_t& sent) {
  std::size_t reads = 0;
  for (sent = 0; may_have_input_ && sent < budget;) {
    const auto buffer = port.allocate(port.mtu_bytes() + wire::kEthernetBytes + wire::kVlanBytes);
    if (!buffer) break;
    const std::size_t room = buffer->capacity - engine::kTxHeadroom;
    ssize_t n = 0;
    do {
      n = ::read(fd_, buffer->base + engine::kTxHeadroom, room);
      ++reads;
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
      // Nothing more, or the interface was taken away: the next edge says when to look again.
      may_have_input_ = false;
      port.discard(*buffer);
      break;
    }
    ++sent;
    const auto length = static_cast<std::size_t>(n);
    if (length == room) {
      // As long as the buffer: the kernel may have cut it.
      counters_.add(Counter::netdev_dropped_frames);
      port.discard(*buffer);
      continue;
    }
    engine::TxFrame frame;
    frame.buffer = *buffer;
    frame.headers_start = engine::kTxHeadroom;
    frame.headers_bytes = static_cast<std::uint16_t>(length);
    frame.length = static_cast<std::uint32_t>(length);
    port.transmit(frame);
    counters_.add(Counter::netdev_tx_frames);
  }
  return reads;
}

}  // namespace rocemu::dpdk
