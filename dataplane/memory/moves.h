// From a looked-up region to moves: an access is split where direct memory begins and ends, so that
// each piece goes one way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dataplane/memory/memory_port.h"
#include "dataplane/memory/mr_table.h"

namespace rocemu::memory {

/// At most this many moves an access of one region: copied, direct, copied.
inline constexpr std::size_t kMaxMovesPerView = 3;

/// True when [0, length) of the access is mapped in the daemon; `direct_at` then gives the bytes.
inline bool is_direct(const MrView& view, std::uint64_t length) {
  return view.direct_base != nullptr && view.offset >= view.direct_begin &&
         length <= view.direct_bytes &&
         view.offset - view.direct_begin <= view.direct_bytes - length;
}
inline std::byte* direct_at(const MrView& view) {
  return view.direct_base + (view.offset - view.direct_begin);
}

/// Calls `emit(const Move&)` for each piece of `length` bytes between the access of `view` and
/// `local`. Returns the number of pieces.
template <typename Emit>
std::size_t split_moves(const MrView& view, Direction direction, std::byte* local,
                        std::uint32_t length, Emit&& emit) {
  std::size_t count = 0;
  std::uint32_t done = 0;
  while (done < length) {
    const std::uint64_t at = view.offset + done;
    std::uint64_t piece = length - done;
    std::byte* direct = nullptr;
    if (view.direct_base != nullptr) {
      const std::uint64_t end = view.direct_begin + view.direct_bytes;
      if (at < view.direct_begin) {
        piece = std::min(piece, view.direct_begin - at);
      } else if (at < end) {
        piece = std::min(piece, end - at);
        direct = view.direct_base + (at - view.direct_begin);
      }
    }
    emit(Move{.space = view.space,
              .direction = direction,
              .status = MoveStatus::kPending,
              .length = static_cast<std::uint32_t>(piece),
              .client_va = view.client_va + done,
              .direct = direct,
              .local = local + done});
    done += static_cast<std::uint32_t>(piece);
    ++count;
  }
  return count;
}

}  // namespace rocemu::memory
