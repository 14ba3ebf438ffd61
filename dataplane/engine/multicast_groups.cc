#include "dataplane/engine/multicast_groups.h"

#include <algorithm>
#include <cerrno>

#include "dataplane/transport/transport_limits.h"

namespace rocemu::engine {

Result<void> MulticastGroups::attach(const wire::Gid& group, std::uint32_t qp) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) {
    if (groups_.size() == transport::kMaxMulticastGroups) {
      return Error{ENOMEM, "the device has no multicast group left"};
    }
    groups_[group].push_back(qp);
    return {};
  }
  auto& qps = found->second;
  if (std::ranges::find(qps, qp) != qps.end()) return {};
  if (qps.size() == transport::kMaxMulticastAttachments) {
    return Error{ENOMEM, "the multicast group is full"};
  }
  qps.push_back(qp);
  return {};
}

Result<void> MulticastGroups::detach(const wire::Gid& group, std::uint32_t qp) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || std::erase(found->second, qp) == 0) {
    return Error{EINVAL, "the queue pair is not attached to this group"};
  }
  if (found->second.empty()) groups_.erase(found);
  return {};
}

void MulticastGroups::forget(std::uint32_t qp) {
  for (auto& [group, qps] : groups_) std::erase(qps, qp);
  std::erase_if(groups_, [](const auto& entry) { return entry.second.empty(); });
}

std::span<const std::uint32_t> MulticastGroups::members(const wire::Gid& group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? std::span<const std::uint32_t>() : found->second;
}

}  // namespace rocemu::engine
