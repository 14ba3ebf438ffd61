// The memory port of simulations and tests: each space is one span of the process's own memory at a
// client address of choice. Bytes outside a span fault, as unmapped memory would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/memory/memory_port.h"

namespace rocemu::memory {

class PlainPort final : public MemoryPort {
 public:
  /// Adds a space whose address `client_va` is bytes[0]. `bytes` must outlive the port.
  SpaceId add_space(std::uint64_t client_va, std::span<std::byte> bytes);

  void move(std::span<Move> moves) override;
  void atomic(AtomicMove& op) override;
  /// It is as lasting as the simulation.
  bool persist(SpaceId) override { return true; }

 private:
  struct Space {
    std::uint64_t client_va;
    std::span<std::byte> bytes;
  };
  /// The bytes of [va, va + length), or null.
  std::byte* find(SpaceId space, std::uint64_t va, std::uint64_t length);

  std::vector<Space> spaces_;
};

}  // namespace rocemu::memory
