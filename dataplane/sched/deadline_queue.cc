#include "dataplane/sched/deadline_queue.h"

#include <cstdlib>
#include <new>

namespace rocemu::sched {
namespace {

void* zeroed(std::size_t count, std::size_t bytes) {
  void* p = std::calloc(count, bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void DeadlineQueue::Free::operator()(void* p) const { std::free(p); }

DeadlineQueue::DeadlineQueue(std::uint32_t capacity)
    : capacity_(capacity),
      heap_(static_cast<Entry*>(zeroed(capacity, sizeof(Entry)))),
      position_(static_cast<std::uint32_t*>(zeroed(capacity, sizeof(std::uint32_t)))) {}

void DeadlineQueue::watch(std::uint32_t owner, Time at) {
  ROCEMU_CHECK(owner < capacity_);
  const std::uint32_t position = position_.get()[owner];
  if (position == 0) {
    place(count_, {at, owner});
    sift_up(count_++);
  } else if (at < heap_.get()[position - 1].at) {
    heap_.get()[position - 1].at = at;
    sift_up(position - 1);
  }
}

void DeadlineQueue::forget(std::uint32_t owner) {
  ROCEMU_CHECK(owner < capacity_);
  const std::uint32_t position = position_.get()[owner];
  if (position != 0) remove(position - 1);
}

std::optional<Time> DeadlineQueue::next() const {
  if (count_ == 0) return std::nullopt;
  return heap_.get()->at;
}

std::optional<std::uint32_t> DeadlineQueue::pop_due(Time now) {
  if (count_ == 0 || heap_.get()->at > now) return std::nullopt;
  const std::uint32_t owner = heap_.get()->owner;
  remove(0);
  return owner;
}

void DeadlineQueue::place(std::uint32_t at, const Entry& entry) {
  heap_.get()[at] = entry;
  position_.get()[entry.owner] = at + 1;
}

void DeadlineQueue::sift_up(std::uint32_t at) {
  const Entry entry = heap_.get()[at];
  while (at != 0) {
    const std::uint32_t parent = (at - 1) / 2;
    if (heap_.get()[parent].at <= entry.at) break;
    place(at, heap_.get()[parent]);
    at = parent;
  }
  place(at, entry);
}

void DeadlineQueue::sift_down(std::uint32_t at) {
  const Entry entry = heap_.get()[at];
  for (;;) {
    std::uint32_t child = 2 * at + 1;
    if (child >= count_) break;
    if (child + 1 < count_ && heap_.get()[child + 1].at < heap_.get()[child].at) ++child;
    if (entry.at <= heap_.get()[child].at) break;
    place(at, heap_.get()[child]);
    at = child;
  }
  place(at, entry);
}

void DeadlineQueue::remove(std::uint32_t at) {
  position_.get()[heap_.get()[at].owner] = 0;
  if (at == --count_) return;
  place(at, heap_.get()[count_]);
  sift_up(at);
  sift_down(position_.get()[heap_.get()[at].owner] - 1);
}

}  // namespace rocemu::sched
