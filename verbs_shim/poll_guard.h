// Keeps pollers of completion queues out while completions are removed from under them. librxe has
// a lock for that, of a private layout; the overlay's functions are around every poll, so theirs
// does the same. A poll costs two uncontended atomic additions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rocemu::shim {

/// Around each poll of `cq`; polls of any number of threads are in at once (the provider's own lock
/// sorts them out). Waits while the CQ is stopped.
void enter_poll(const void* cq);
void leave_poll(const void* cq);

/// Stops polls of one or two CQs for its lifetime.
class StoppedPolls {
 public:
  /// Waits for the polls that are in, a second at most: a thread between ibv_start_poll and
  /// ibv_end_poll is inside.
  StoppedPolls(const void* first, const void* second);
  ~StoppedPolls();
  StoppedPolls(const StoppedPolls&) = delete;
  StoppedPolls& operator=(const StoppedPolls&) = delete;

  /// False when the wait was in vain: nothing is stopped.
  explicit operator bool() const { return is_stopped_; }

 private:
  std::atomic<std::uint32_t>* stripes_[2];
  bool is_stopped_ = false;
};

/// In a child of fork: the threads that were polling are not here.
void forget_polls_after_fork();

}  // namespace rocemu::shim
