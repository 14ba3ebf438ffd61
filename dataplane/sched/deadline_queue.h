// Deadlines of many owners, the earliest first: a binary heap with one place an owner, so that
// moving a deadline never grows it. An owner is an index. Moving a deadline later is free: the
// entry stays where it is and is looked at again when its old time comes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "rocemu/base/check.h"
#include "rocemu/base/time.h"

namespace rocemu::sched {

class DeadlineQueue {
 public:
  /// `capacity`: owners 0 ... capacity - 1; address space only until used.
  explicit DeadlineQueue(std::uint32_t capacity);

  /// Makes sure that `owner` is looked at no later than `at`.
  void watch(std::uint32_t owner, Time at);
  void forget(std::uint32_t owner);

  /// When the earliest entry is due; it may turn out too early.
  std::optional<Time> next() const;
  /// Takes the earliest owner that is due at `now` out of the queue.
  std::optional<std::uint32_t> pop_due(Time now);

 private:
  struct Entry {
    Time at;
    std::uint32_t owner;
  };
  struct Free {
    void operator()(void* p) const;
  };

  void place(std::uint32_t at, const Entry& entry);
  void sift_up(std::uint32_t at);
  void sift_down(std::uint32_t at);
  void remove(std::uint32_t at);

  std::uint32_t capacity_;
  std::uint32_t count_ = 0;
  std::unique_ptr<Entry, Free> heap_;
  std::unique_ptr<std::uint32_t, Free>
      position_;  ///< Of an owner in the heap, plus one; 0: not there.
};

}  // namespace rocemu::sched
