#include "tests/integration/integrity/plan.h"

#include <algorithm>
#include <cstring>

namespace rocemu::integrity {
namespace {

constexpr std::uint64_t kGuardBytes = 64;
constexpr std::uint32_t kMaxPieces = 32;

std::byte guard(int side, std::uint64_t at) {
  return static_cast<std::byte>(0xa0 + side * 7 + (at * 131 >> 3));
}

constexpr std::uint32_t kKinds = 7;
constexpr auto kFirstReadOrAtomic = static_cast<std::uint32_t>(Kind::kRead);

std::byte content(std::uint64_t round, std::size_t operation, std::uint64_t at) {
  return static_cast<std::byte>(round * 29 + operation * 61 + at * 7 + (at >> 8) * 3 + 1);
}

std::uint64_t atomic_start(std::uint64_t round, std::size_t operation) {
  return round * 0x9e37'79b9'7f4a'7c15 + operation;
}

// Biased to the edges of packets and pages.
std::uint32_t draw_size(Prng& draw) {
  switch (draw.below(8)) {
    case 0:
      return static_cast<std::uint32_t>(draw.below(9));
    case 1:
      return static_cast<std::uint32_t>((256u << draw.below(5)) + draw.below(5) - 2);
    case 2:
      return static_cast<std::uint32_t>(draw.below(kMaxOperationBytes));
    case 3:
      return static_cast<std::uint32_t>(draw.below(65'536));
    default:
      return static_cast<std::uint32_t>(draw.below(5000));
  }
}

std::vector<std::uint32_t> draw_pieces(Prng& draw, std::uint32_t total) {
  const std::uint64_t count = draw.below(4) == 0 ? 1 + draw.below(kMaxPieces) : 1 + draw.below(3);
  std::vector<std::uint32_t> pieces;
  std::uint32_t left = total;
  for (std::uint64_t i = 1; i < count; ++i) {
    const auto piece = static_cast<std::uint32_t>(draw.below(left + 1));
    pieces.push_back(piece);
    left -= piece;
  }
  pieces.push_back(left);
  return pieces;
}

}  // namespace

Round draw_round(Prng& draw, std::uint64_t number, const Mix& mix) {
  Round round;
  round.number = number;
  round.uses_events = draw.below(4) == 0;
  std::uint64_t next[2] = {kGuardBytes, kGuardBytes};
  const std::uint64_t wanted = 1 + draw.below(64);
  for (std::uint64_t i = 0; i < wanted; ++i) {
    Operation op;
    op.kind =
        static_cast<Kind>(draw.below(mix.has_reads_and_atomics ? kKinds : kFirstReadOrAtomic));
    op.initiator = static_cast<int>(draw.below(2));
    op.qp = static_cast<std::uint32_t>(draw.below(mix.qps));
    op.size = op.is_atomic() ? 8 : draw_size(draw);
    op.immediate = static_cast<std::uint32_t>(draw.next());
    op.operand = draw.next();
    op.has_matching_compare = draw.below(2) == 0;
    op.is_signaled = draw.below(4) != 0;
    const bool may_inline = op.kind != Kind::kRead && !op.is_atomic();
    op.is_inline = may_inline && op.size <= mix.max_inline && draw.below(2) == 0;
    op.initiator_pieces =
        op.is_atomic() ? std::vector<std::uint32_t>{8} : draw_pieces(draw, op.size);
    // A receive may be longer than what comes.
    op.responder_pieces = draw_pieces(
        draw,
        op.kind == Kind::kWriteImm ? 0 : op.size + static_cast<std::uint32_t>(draw.below(100)));
    const std::uint64_t room = op.size + 128 + kGuardBytes;
    const int other = 1 - op.initiator;
    const std::uint64_t skew = op.is_atomic() ? 0 : draw.below(16);
    next[0] = (next[0] + 7) & ~std::uint64_t{7};
    next[1] = (next[1] + 7) & ~std::uint64_t{7};
    if (next[0] + room + 16 > kBufferBytes || next[1] + room + 16 > kBufferBytes) break;
    op.initiator_offset = next[op.initiator] + skew;
    op.responder_offset = next[other] + (op.is_atomic() ? 0 : 15 - skew);
    next[0] += room + 16;
    next[1] += room + 16;
    round.operations.push_back(std::move(op));
  }
  // The last of each queue pair and side is signalled: then all before it are done.
  for (std::uint32_t qp = 0; qp < mix.qps; ++qp) {
    for (const int side : {0, 1}) {
      const auto last =
          std::find_if(round.operations.rbegin(), round.operations.rend(),
                       [&](const Operation& op) { return op.qp == qp && op.initiator == side; });
      if (last != round.operations.rend()) last->is_signaled = true;
    }
  }
  return round;
}

std::vector<std::byte> Round::before(int side) const {
  std::vector<std::byte> bytes(kBufferBytes);
  for (std::uint64_t i = 0; i < kBufferBytes; ++i) bytes[i] = guard(side, i);
  for (std::size_t n = 0; n < operations.size(); ++n) {
    const Operation& op = operations[n];
    const bool is_initiator = op.initiator == side;
    if (op.is_atomic()) {
      if (is_initiator) continue;
      const std::uint64_t word = atomic_start(number, n);
      std::memcpy(&bytes[op.responder_offset], &word, 8);
      continue;
    }
    const bool is_source = is_initiator != (op.kind == Kind::kRead);
    if (!is_source) continue;
    const std::uint64_t at = is_initiator ? op.initiator_offset : op.responder_offset;
    for (std::uint32_t i = 0; i < op.size; ++i) bytes[at + i] = content(number, n, i);
  }
  return bytes;
}

std::vector<std::byte> Round::after(int side) const {
  std::vector<std::byte> bytes = before(side);
  for (std::size_t n = 0; n < operations.size(); ++n) {
    const Operation& op = operations[n];
    const bool is_initiator = op.initiator == side;
    if (op.is_atomic()) {
      const std::uint64_t start = atomic_start(number, n);
      std::uint64_t word = start;
      if (!is_initiator) {
        word = op.kind == Kind::kFetchAdd ? start + op.operand
               : op.has_matching_compare  ? op.operand
                                          : start;
      }
      std::memcpy(&bytes[is_initiator ? op.initiator_offset : op.responder_offset], &word, 8);
      continue;
    }
    const bool is_target = is_initiator == (op.kind == Kind::kRead);
    if (!is_target) continue;
    const std::uint64_t at = is_initiator ? op.initiator_offset : op.responder_offset;
    for (std::uint32_t i = 0; i < op.size; ++i) bytes[at + i] = content(number, n, i);
  }
  return bytes;
}

}  // namespace rocemu::integrity
