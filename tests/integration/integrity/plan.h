// What both processes know without talking: the operations of a round, drawn from a shared seed,
// and what the memory of each side must hold before and after. Every operation has a slot of its
// own at both sides, with guard bytes between slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rocemu/base/prng.h"

namespace rocemu::integrity {

enum class Kind : std::uint8_t {
  kSend,
  kSendImm,
  kWrite,
  kWriteImm,
  kRead,
  kFetchAdd,
  kCompareSwap
};

struct Operation {
  Kind kind = Kind::kSend;
  int initiator = 0;  ///< 0 or 1.
  std::uint32_t qp = 0;
  std::uint32_t size = 0;
  std::uint64_t initiator_offset = 0;
  std::uint64_t responder_offset = 0;
  std::uint32_t immediate = 0;
  std::uint64_t operand = 0;  ///< Added, or swapped in.
  bool is_inline = false;
  bool is_signaled = true;
  bool has_matching_compare = true;
  std::vector<std::uint32_t> initiator_pieces;  ///< SGE lengths; their sum is `size`.
  std::vector<std::uint32_t> responder_pieces;  ///< Of a receive; may hold more than `size`.

  bool takes_receive() const {
    return kind == Kind::kSend || kind == Kind::kSendImm || kind == Kind::kWriteImm;
  }
  bool is_atomic() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }
};

inline constexpr std::uint64_t kBufferBytes = 8 << 20;
inline constexpr std::uint32_t kMaxOperationBytes = 1 << 20;

struct Round {
  std::vector<Operation> operations;
  bool uses_events = false;

  /// The buffer of `side` before the round, and what it must be after.
  std::vector<std::byte> before(int side) const;
  std::vector<std::byte> after(int side) const;

  std::uint64_t number = 0;
};

/// The same at both sides.
struct Mix {
  std::uint32_t qps = 1;
  std::uint32_t max_inline = 0;
  bool has_reads_and_atomics = true;
};

/// `draw` must be in the same state at both sides.
Round draw_round(Prng& draw, std::uint64_t number, const Mix& mix);

}  // namespace rocemu::integrity
