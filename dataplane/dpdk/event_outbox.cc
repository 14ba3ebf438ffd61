// Writes of 8 bytes to a pipe are atomic and never partial (PIPE_BUF), so an event is written,
// refused, or its reader is gone.
#include "dataplane/dpdk/event_outbox.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rocemu::dpdk {

void EventOutbox::bind(CqIndex cq, const CompletionTarget& target) {
  if (cq.value >= targets_.size()) targets_.resize(cq.value + 1);
  (void)unbind(cq);
  targets_[cq.value].to = target;
  if (target.pipe_fd >= 0) ++channels_[target.pipe_fd].users;
}

std::uint64_t EventOutbox::unbind(CqIndex cq) {
  if (cq.value >= targets_.size()) return 0;
  const Target target = std::exchange(targets_[cq.value], Target{});
  std::erase(due_, cq);
  const auto found = channels_.find(target.to.pipe_fd);
  if (found == channels_.end()) return target.delivered;
  Channel& channel = found->second;
  if (target.waiting != 0) {
    std::erase(channel.line, cq);
    if (channel.line.empty()) std::erase(blocked_, target.to.pipe_fd);
  }
  if (--channel.users == 0) channels_.erase(found);
  return target.delivered;
}

std::uint64_t EventOutbox::deliver(Time now) {
  // Those that waited go first.
  std::uint64_t calls = now >= next_retry() ? retry(now) : 0;
  const bool was_blocked = !blocked_.empty();
  for (const CqIndex cq : due_) post(cq, calls);
  due_.clear();
  if (!was_blocked && !blocked_.empty()) retry_at_ = now + kRetryInterval;
  return calls;
}

void EventOutbox::post(CqIndex cq, std::uint64_t& calls) {
  if (cq.value >= targets_.size()) return;
  Target& target = targets_[cq.value];
  if (target.to.pipe_fd < 0) return;  // no channel, or unbound since
  Channel& channel = channels_.at(target.to.pipe_fd);
  if (channel.line.empty()) {
    ++calls;
    if (write_event(target) != Outcome::kFull) return;
    blocked_.push_back(target.to.pipe_fd);
  }
  if (target.waiting++ == 0) channel.line.push_back(cq);
}

EventOutbox::Outcome EventOutbox::write_event(Target& target) {
  ssize_t n;
  do {
    n = ::write(target.to.pipe_fd, &target.to.cookie, sizeof target.to.cookie);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof target.to.cookie) {
    ++target.delivered;
    return Outcome::kWritten;
  }
  return n < 0 && errno == EAGAIN ? Outcome::kFull : Outcome::kGone;
}

std::uint64_t EventOutbox::retry(Time now) {
  std::uint64_t calls = 0;
  retry_at_ = now + kRetryInterval;
  for (std::size_t turns = blocked_.size(); turns != 0 && calls < kRetryWrites; --turns) {
    const int fd = blocked_.front();
    blocked_.pop_front();
    Channel& channel = channels_.at(fd);
    const bool is_full = !drain_line(channel, calls);
    if (!channel.line.empty()) blocked_.push_back(fd);
    if (!is_full && !channel.line.empty()) retry_at_ = now;  // the budget ended, not the room
  }
  return calls;
}

bool EventOutbox::drain_line(Channel& channel, std::uint64_t& calls) {
  while (!channel.line.empty() && calls < kRetryWrites) {
    Target& target = targets_[channel.line.front().value];
    ++calls;
    if (write_event(target) == Outcome::kFull) return false;
    if (--target.waiting == 0) channel.line.pop_front();
  }
  return true;
}

}  // namespace rocemu::dpdk
