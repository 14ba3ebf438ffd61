#include "control/event_loop.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace rocemu::control {

EventLoop::EventLoop() : epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_fd_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

EventLoop::~EventLoop() { ::close(epoll_fd_); }

void EventLoop::add(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
}

void EventLoop::remove(int fd) {
  if (handlers_.erase(fd) != 0) ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::after(std::chrono::nanoseconds delay, std::function<void()> action) {
  const TimerId id = next_timer_++;
  const auto at = Clock::now() + delay;
  timers_.emplace(std::pair(at, id), std::move(action));
  due_.emplace(id, at);
  return id;
}

void EventLoop::cancel(TimerId timer) {
  const auto found = due_.find(timer);
  if (found == due_.end()) return;
  timers_.erase({found->second, timer});
  due_.erase(found);
}

int EventLoop::wait_milliseconds() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
}

void EventLoop::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= Clock::now()) {
    auto node = timers_.extract(timers_.begin());
    due_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::run() {
  std::array<epoll_event, 64> events;
  while (!is_stopping_) {
    const int count = ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()),
                                   wait_milliseconds());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto found = handlers_.find(event.data.fd);
      if (found == handlers_.end()) continue;  // removed by an earlier handler of this batch
      const std::shared_ptr<Handler> handler = found->second;
      (*handler)(event.events);
    }
    run_timers();
  }
}

}  // namespace rocemu::control
