// The twin of one side of a captured conversation: our engine, under the personality of rxe, takes
// the frames that the side received and is given the work that the side was given (deduced from its
// own requests), and what it sends is compared with what the side sent, field by field. Time passes
// only when the engine has nothing to send and the capture says that it should.
//
// Deduced from the capture, not tested by it: PSNs at the start, keys and addresses, rights (a
// request that was refused for them is given none), receives (posted when the request for them
// comes, unless the answer was an RNR NAK), values of words before an atomic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/interop/conversation.h"

namespace rocemu::interop {

/// A field in which our frame differs from the captured one.
struct Difference {
  std::string field;
  std::string ours;
  std::string theirs;
  std::size_t step = 0;  ///< Of the conversation.
};

struct TwinResult {
  std::size_t compared = 0;  ///< Frames.
  std::vector<Difference> differences;
};

struct TwinOptions {
  /// The side's frames may have been lost before the capture point: ours that match nothing are
  /// passed over until one does.
  bool may_miss_frames = false;
};

TwinResult play_twin(const Conversation& conversation, Side side, const TwinOptions& options);

}  // namespace rocemu::interop
