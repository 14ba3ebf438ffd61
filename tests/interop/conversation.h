// What two queue pairs said to each other in a capture. Soft-RoCE gives both directions of a QP
// pair one UDP source port, so a port and two addresses name the pair. Frames that were captured
// but never arrived (dropped in the receiving guest, corrupted on the way) are marked.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/wire/packet.h"
#include "tests/interop/capture_file.h"

namespace rocemu::interop {

enum class Side : std::uint8_t { kA, kB };  ///< Client and server of the captured run.
constexpr Side other(Side side) { return side == Side::kA ? Side::kB : Side::kA; }

/// A frame on the wire. `packet.payload` points into the capture's frames.
struct Step {
  Side from = Side::kA;
  wire::Packet packet;
  bool has_arrived = true;
};

struct Conversation {
  wire::Service service = wire::Service::kRc;
  std::vector<Step> steps;

  /// Requests of a side, or its responses.
  std::vector<const Step*> of(Side from, bool is_request) const;
  std::uint32_t path_mtu() const;  ///< The smallest that explains the segmentation seen.
};

/// The conversations of a capture whose frames must outlive them.
std::vector<Conversation> split(const std::string& capture, const std::vector<Frame>& frames);

}  // namespace rocemu::interop
