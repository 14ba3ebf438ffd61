#include "dataplane/dpdk/event_outbox.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rocemu::dpdk {

void EventOutbox::bind(CqIndex cq, const CompletionTarget& target) {
  if (cq.value >= targets_.size()) targets_.resize(cq.value + 1);
  targets_[cq.value] = {target, 0};
}

std::uint64_t EventOutbox::unbind(CqIndex cq) {
  std::erase(due_, cq);
  std::erase(blocked_, cq);
  if (cq.value >= targets_.size()) return 0;
  const std::uint64_t delivered = targets_[cq.value].delivered;
  targets_[cq.value] = Target{};
  return delivered;
}

EventOutbox::Outcome EventOutbox::write_event(Target& target) {
  if (target.to.pipe_fd < 0) return Outcome::kGone;
  ssize_t n;
  do {
    n = ::write(target.to.pipe_fd, &target.to.cookie, sizeof target.to.cookie);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof target.to.cookie) {
    ++target.delivered;
    return Outcome::kWritten;
  }
  return errno == EAGAIN ? Outcome::kFull : Outcome::kGone;
}

std::uint64_t EventOutbox::deliver() {
  std::uint64_t calls = 0;
  // Those that waited go first; one that must wait on keeps its place.
  std::deque<CqIndex> waiting;
  waiting.swap(blocked_);
  waiting.insert(waiting.end(), due_.begin(), due_.end());
  due_.clear();
  for (const CqIndex cq : waiting) {
    if (cq.value >= targets_.size()) continue;
    Target& target = targets_[cq.value];
    const bool is_behind = std::ranges::any_of(blocked_, [&](CqIndex other) {
      return targets_[other.value].to.pipe_fd == target.to.pipe_fd;
    });
    ++calls;
    if (is_behind || write_event(target) == Outcome::kFull) blocked_.push_back(cq);
  }
  return calls;
}

}  // namespace rocemu::dpdk
