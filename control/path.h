// From a verbs address vector to the headers of a path: the one place where the GID table, the
// neighbours and the QP numbers meet. Used by queue pairs and address handles alike. Control thread
// only.
#pragma once

#include "control/device.h"
#include "dataplane/transport/qp_attr.h"
#include "rocemu/base/ids.h"

namespace rocemu::control {

/// QP numbers of both ends, from which the UDP source port is folded without a flow label; both
/// zero where no peer is known (address handles).
struct PathEnds {
  QpNum local{0};
  QpNum remote{0};
};

enum class PathOutcome { kFound, kInvalid, kNeighbourAsked };

/// Fills `path.headers` from `path.verbs`, whose hop limit becomes the route's. kInvalid: no GRH,
/// no such GID or port, or families that differ. kNeighbourAsked: the peer's MAC is not known yet;
/// `awaited` says whose.
PathOutcome resolve_path(Device& device, const PathEnds& ends, transport::AddressVector& path,
                         wire::Gid& awaited);

}  // namespace rocemu::control
