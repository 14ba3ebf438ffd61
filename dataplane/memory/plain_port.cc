#include "dataplane/memory/plain_port.h"

#include <cstring>

#include "dataplane/memory/direct.h"

namespace rocemu::memory {

SpaceId PlainPort::add_space(std::uint64_t client_va, std::span<std::byte> bytes) {
  spaces_.push_back({client_va, bytes});
  return SpaceId{static_cast<std::uint32_t>(spaces_.size() - 1)};
}

std::byte* PlainPort::find(SpaceId space, std::uint64_t va, std::uint64_t length) {
  if (space.value >= spaces_.size()) return nullptr;
  const Space& s = spaces_[space.value];
  if (va < s.client_va || length > s.bytes.size()) return nullptr;
  const std::uint64_t offset = va - s.client_va;
  if (offset > s.bytes.size() - length) return nullptr;
  return s.bytes.data() + offset;
}

void PlainPort::move(std::span<Move> moves) {
  for (Move& m : moves) {
    std::byte* client = m.direct != nullptr ? m.direct : find(m.space, m.client_va, m.length);
    if (client == nullptr) {
      m.status = MoveStatus::kFault;
      continue;
    }
    if (m.length != 0 && m.direction == Direction::kFromClient) {
      std::memcpy(m.local, client, m.length);
    } else if (m.length != 0) {
      copy_to_polled(client, m.local, m.length);
    }
    m.status = MoveStatus::kDone;
  }
}

void PlainPort::atomic(AtomicMove& op) {
  if (op.direct == nullptr) op.direct = find(op.space, op.client_va, 8);
  if (op.direct == nullptr) {
    op.status = MoveStatus::kFault;
    return;
  }
  run_direct_atomic(op);
}

}  // namespace rocemu::memory
