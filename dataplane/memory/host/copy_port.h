// The `copy` backend: client memory is read and written through the file of its address space.
// Neighbouring moves that continue each other in the client's memory (the packets of one message)
// become one system call; moves of direct memory need none. One port a worker; atomics of all ports
// exclude each other, so they are atomic within the daemon (IBV_ATOMIC_HCA).
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/memory/host/address_spaces.h"
#include "dataplane/memory/memory_port.h"

namespace rocemu::memory {

class CopyPort final : public MemoryPort {
 public:
  explicit CopyPort(const AddressSpaces& spaces);

  void move(std::span<Move> moves) override;
  void atomic(AtomicMove& op) override;
  /// Applications' memory is gone with its process.
  bool persist(SpaceId) override { return false; }

  /// System calls made so far.
  std::uint64_t system_calls() const { return system_calls_; }

 private:
  void copy_run(std::span<Move> run);

  const AddressSpaces& spaces_;
  std::vector<iovec> iovecs_;
  std::uint64_t system_calls_ = 0;
};

}  // namespace rocemu::memory
