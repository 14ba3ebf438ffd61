// Frames for ports: made, sent and received without a worker.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <vector>

#include "dataplane/dpdk/port.h"

namespace rocemu::dpdk::test {

inline constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/// `bytes` in all: the destination, then `number` in every byte. Not flushed.
inline bool send(Port& port, const wire::MacAddress& to, std::uint8_t number,
                 std::size_t bytes = 64) {
  const auto buffer = port.allocate(bytes);
  if (!buffer) return false;
  engine::TxFrame frame;
  frame.buffer = *buffer;
  frame.headers_start = engine::kTxHeadroom - 14;
  frame.headers_bytes = 14;
  frame.length = static_cast<std::uint32_t>(bytes);
  std::byte* p = buffer->base + frame.headers_start;
  std::memset(p, number, bytes);
  std::memcpy(p, to.data(), std::min(bytes, to.size()));
  port.transmit(frame);
  return true;
}

struct Received {
  int number = 0;
  std::size_t bytes = 0;
  friend bool operator==(const Received&, const Received&) = default;
};

/// What is there now.
inline std::vector<Received> receive_all(Port& port) {
  std::vector<Received> out;
  std::array<engine::RxFrame, 32> burst;
  while (const std::size_t n = port.receive(burst)) {
    for (const auto& frame : std::span(burst).first(n)) {
      out.push_back({std::to_integer<int>(frame.bytes().back()), frame.bytes().size()});
    }
    port.release_received(std::span(burst).first(n));
  }
  return out;
}

/// Runs `done` until it holds, 20 s at most.
template <typename Condition>
bool eventually(Condition done) {
  for (int i = 0; i < 20'000; ++i) {
    if (done()) return true;
    ::poll(nullptr, 0, 1);
  }
  return false;
}

}  // namespace rocemu::dpdk::test
