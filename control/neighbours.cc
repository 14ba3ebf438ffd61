#include "control/neighbours.h"

#include <algorithm>

namespace rocemu::control {

Neighbours::Found Neighbours::find(const wire::Gid& gid, Time now) {
  if (const auto fixed = fixed_.find(gid); fixed != fixed_.end()) return {fixed->second, false};
  const auto found = learnt_.find(gid);
  if (found == learnt_.end()) return {std::nullopt, true};
  const auto age = now - found->second.confirmed_at;
  if (age >= kLifetime) {
    learnt_.erase(found);
    return {std::nullopt, true};
  }
  return {found->second.mac, age >= kFresh};
}

void Neighbours::learn(const wire::Gid& gid, const wire::MacAddress& mac, Time now) {
  if (fixed_.contains(gid)) return;
  if (size() >= kMaxEntries && !learnt_.contains(gid)) {
    const auto oldest = std::ranges::min_element(
        learnt_, {}, [](const auto& entry) { return entry.second.confirmed_at; });
    if (oldest == learnt_.end()) return;
    learnt_.erase(oldest);
  }
  learnt_[gid] = {mac, now};
}

}  // namespace rocemu::control
