#include "dataplane/memory/host/copy_port.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "dataplane/memory/direct.h"

namespace rocemu::memory {
namespace {

std::mutex g_atomic_lock;

bool continues(const Move& first, const Move& next, std::uint64_t bytes) {
  return next.direct == nullptr && next.space == first.space && next.direction == first.direction &&
         next.client_va == first.client_va + bytes;
}

void move_direct(Move& m) {
  if (m.length != 0 && m.direction == Direction::kFromClient) {
    std::memcpy(m.local, m.direct, m.length);
  } else if (m.length != 0) {
    copy_to_polled(m.direct, m.local, m.length);
  }
  m.status = MoveStatus::kDone;
}

}  // namespace

CopyPort::CopyPort(const AddressSpaces& spaces) : spaces_(spaces), iovecs_(IOV_MAX) {}

void CopyPort::move(std::span<Move> moves) {
  std::size_t i = 0;
  while (i < moves.size()) {
    if (moves[i].direct != nullptr) {
      move_direct(moves[i++]);
      continue;
    }
    std::size_t end = i + 1;
    std::uint64_t bytes = moves[i].length;
    while (end < moves.size() && end - i < iovecs_.size() &&
           continues(moves[i], moves[end], bytes)) {
      bytes += moves[end++].length;
    }
    copy_run(moves.subspan(i, end - i));
    i = end;
  }
}

// Moves that are one range of the client. After a fault the rest is tried move by move, so that one
// bad page fails one move.
void CopyPort::copy_run(std::span<Move> run) {
  const int fd = spaces_.file_of(run.front().space);
  while (!run.empty()) {
    for (std::size_t i = 0; i < run.size(); ++i) iovecs_[i] = {run[i].local, run[i].length};
    const auto at = static_cast<off_t>(run.front().client_va);
    const int count = static_cast<int>(run.size());
    ssize_t n = -1;
    // Addresses with the top bit set are no user memory and no offsets.
    if (fd >= 0 && at >= 0) {
      ++system_calls_;
      do {
        n = run.front().direction == Direction::kFromClient
                ? ::preadv(fd, iovecs_.data(), count, at)
                : ::pwritev(fd, iovecs_.data(), count, at);
      } while (n < 0 && errno == EINTR);
    }
    std::uint64_t done = n > 0 ? static_cast<std::uint64_t>(n) : 0;
    std::size_t i = 0;
    for (; i < run.size() && done >= run[i].length; ++i) {
      done -= run[i].length;
      run[i].status = MoveStatus::kDone;
    }
    if (i < run.size()) run[i++].status = MoveStatus::kFault;
    run = run.subspan(i);
  }
}

void CopyPort::atomic(AtomicMove& op) {
  if (op.direct != nullptr) {
    run_direct_atomic(op);
    return;
  }
  const int fd = spaces_.file_of(op.space);
  const auto at = static_cast<off_t>(op.client_va);
  op.status = MoveStatus::kFault;
  if (fd < 0 || at < 0) return;
  const std::lock_guard lock(g_atomic_lock);
  system_calls_ += 2;
  std::uint64_t word = 0;
  if (::pread(fd, &word, sizeof word, at) != sizeof word) return;
  const std::uint64_t result = atomic_result(op, word);
  if (result != word && ::pwrite(fd, &result, sizeof result, at) != sizeof result) return;
  op.original = word;
  op.status = MoveStatus::kDone;
}

}  // namespace rocemu::memory
