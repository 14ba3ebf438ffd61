// A pipe that carries fixed-size event records to an application: completion events (8 bytes) or
// asynchronous events (16 bytes). The application holds the only read end, so that its closing
// shows at the write end; the daemon opens another for a moment to take back events of an object
// that ends before they were read, which the destroy command must not count as delivered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "control/unique_fd.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

class EventPipe {
 public:
  /// `record_bytes`: 8 or 16. Each record begins with the 8-byte cookie of its object. EMFILE and
  /// the like.
  static Result<EventPipe> make(std::size_t record_bytes);

  /// The read end for the application; given away once.
  UniqueFd take_read_end() { return std::move(read_end_); }
  int write_fd() const { return write_end_.get(); }

  /// Writes a record, or keeps it until flush() finds room. An application that reads nothing loses
  /// the records beyond 65536.
  void push(std::span<const std::byte> record);
  bool is_waiting() const { return !waiting_.empty(); }
  /// Retries what waits. True when nothing waits any more.
  bool flush();
  /// Takes unread records of `cookie` back; returns how many.
  std::uint32_t withdraw(std::uint64_t cookie);

 private:
  std::size_t record_bytes_ = 8;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::deque<std::vector<std::byte>> waiting_;
};

}  // namespace rocemu::control
