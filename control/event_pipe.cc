#include "control/event_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "rocemu/base/bytes.h"

namespace rocemu::control {
namespace {

// What an unprivileged application can make its pipe hold (fs.pipe-max-size).
constexpr std::size_t kMaxPipeBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxWaiting = std::size_t{1} << 16;

}  // namespace

Result<EventPipe> EventPipe::make(std::size_t record_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error{errno, "no pipe for events"};
  EventPipe out;
  out.record_bytes_ = record_bytes;
  out.read_end_ = UniqueFd(ends[0]);
  out.write_end_ = UniqueFd(ends[1]);
  // The write end is ours alone. O_NONBLOCK belongs to a description: the application's must stay
  // as the application sets it.
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  return out;
}

void EventPipe::push(std::span<const std::byte> record) {
  if (waiting_.size() < kMaxWaiting) waiting_.emplace_back(record.begin(), record.end());
  (void)flush();
}

bool EventPipe::flush() {
  while (!waiting_.empty()) {
    const auto& record = waiting_.front();
    const ssize_t n = ::write(write_end_.get(), record.data(), record.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    waiting_.pop_front();
  }
  return true;
}

std::uint32_t EventPipe::withdraw(std::uint64_t cookie) {
  std::uint32_t withdrawn = 0;
  std::deque<std::vector<std::byte>> kept;
  std::vector<std::byte> record(record_bytes_);
  const auto sort = [&](const std::vector<std::byte>& r) {
    if (load<std::uint64_t>(r.data()) == cookie) {
      ++withdrawn;
    } else {
      kept.push_back(r);
    }
  };
  // A description of our own: the application's O_NONBLOCK flag is not ours to set.
  const std::string path = "/proc/self/fd/" + std::to_string(write_end_.get());
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // Bounded: the application may write into its pipe as fast as we read.
  for (std::size_t i = 0; i < kMaxPipeBytes / record_bytes_; ++i) {
    const ssize_t n = ::read(reader.get(), record.data(), record.size());
    if (n != static_cast<ssize_t>(record_bytes_)) break;
    sort(record);
  }
  for (const auto& r : waiting_) sort(r);
  waiting_ = std::move(kept);
  (void)flush();
  return withdrawn;
}

}  // namespace rocemu::control
