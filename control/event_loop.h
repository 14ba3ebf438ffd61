// The control thread's loop: descriptors and timers, one thread, callbacks. Nothing here blocks but
// the wait itself.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

namespace rocemu::control {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;
  using TimerId = std::uint64_t;

  /// Throws std::system_error.
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` when `fd` is ready for `events` (level-triggered). The handler may remove any
  /// descriptor, its own too.
  void add(int fd, std::uint32_t events, Handler handler);
  void remove(int fd);

  TimerId after(std::chrono::nanoseconds delay, std::function<void()> action);
  void cancel(TimerId timer);

  /// Runs until stop().
  void run();
  void stop() { is_stopping_ = true; }

 private:
  void run_timers();
  int wait_milliseconds() const;

  int epoll_fd_ = -1;
  bool is_stopping_ = false;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
  TimerId next_timer_ = 1;
  std::map<std::pair<Clock::time_point, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, Clock::time_point> due_;
};

}  // namespace rocemu::control
