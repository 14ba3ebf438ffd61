// A frame on its way out: headers written, payload still to come. The engine gives the room, a role
// fills in the plan, the moves run, the engine finishes (ICRC) and sends, or takes the frame back
// when its payload could not be read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/transport/qp.h"

namespace rocemu::transport {

struct FramePlan {
  enum class Kind : std::uint8_t { kRequest, kResponse };

  Kind kind = Kind::kRequest;
  std::uint32_t qp = kNoIndex;
  std::uint32_t record = kNoIndex;  ///< Requests.
  std::uint32_t wqe_index = 0;      ///< Requests: guards against a record that ended meanwhile.
  const wire::PathTemplate* path = nullptr;  ///< Until the frame is sent: the QP's, or a handle's.
  std::byte* payload =
      nullptr;  ///< Where the payload goes in the frame's buffer; headers end here.
  std::uint16_t header_bytes = 0;
  std::uint32_t payload_bytes = 0;
  const std::byte* direct =
      nullptr;  ///< All of the payload, mapped; else `move_count` moves fill it in.
  std::uint32_t first_move = 0;
  std::uint32_t move_count = 0;
  bool is_payload_ready = false;  ///< Inline: already in place.
  Psn psn;
};

/// Whether a role put a frame into the plan.
enum class Planned : std::uint8_t { kFrame, kNothing };

}  // namespace rocemu::transport
