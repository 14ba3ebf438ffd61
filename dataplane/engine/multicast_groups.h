// Which queue pairs are attached to which multicast groups. Attaching and detaching are set-up and
// may allocate; looking a group up does not.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dataplane/wire/headers.h"
#include "rocemu/base/result.h"

namespace rocemu::engine {

class MulticastGroups {
 public:
  /// Nothing happens when the QP is attached already. ENOMEM at the limits of groups and of QPs a
  /// group (transport_limits.h).
  Result<void> attach(const wire::Gid& group, std::uint32_t qp);
  /// EINVAL when it is not attached.
  Result<void> detach(const wire::Gid& group, std::uint32_t qp);
  /// The QP is about to go.
  void forget(std::uint32_t qp);

  /// Slots of the attached QPs, in the order of attaching; empty when there is no such group.
  std::span<const std::uint32_t> members(const wire::Gid& group) const;

 private:
  std::map<wire::Gid, std::vector<std::uint32_t>> groups_;
};

}  // namespace rocemu::engine
