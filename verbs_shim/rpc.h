// One connection to the daemon and one request at a time on it (include/rocemu/abi/socket.h). The
// daemon's replies are checked like any input: a reply that breaks the protocol ends the
// connection, and every later call answers EIO. The caller holds the connection's lock and a
// SignalGuard during a call.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "rocemu/abi/socket.h"

namespace rocemu::shim {

struct Connection {
  int fd = -1;  ///< Hidden; -1: none or broken.
  std::uint32_t sequence = 0;
};

/// What came back. `payload` lies in the buffer that the caller gave.
struct Reply {
  std::span<std::byte> payload;
  int fds[abi::kMaxMessageFds];  ///< Close on exec; the caller's to keep or close.
  std::size_t fd_count = 0;
  bool is_fd_lost = false;  ///< The process had no room for a descriptor that was sent.
};

/// Connects and exchanges hellos. Returns 0 or a positive errno; ENODEV covers "no daemon", which
/// is explained on stderr once.
int connect_daemon(Connection& connection);
void disconnect(Connection& connection);
/// Tells the daemon that this end is done and waits, a second at most, until it let go of all that
/// hung on the connection; then disconnects.
void disconnect_and_wait(Connection& connection);

/// Sends one request and receives its reply into `buffer` (kMaxMessageBytes for commands). Returns
/// 0, the daemon's error, or EIO when the daemon is gone or talks nonsense. Unless 0 is returned
/// there are no descriptors in `reply`.
int call(Connection& connection, abi::MessageType type, std::span<const std::byte> request,
         std::span<std::byte> buffer, Reply& reply);

/// The daemon's process id as the socket knows it; 0 when it lies outside our pid namespace.
pid_t daemon_pid(const Connection& connection);

void close_fds(Reply& reply);

/// True when a daemon answers; remembered once it was so.
bool is_daemon_there();

}  // namespace rocemu::shim
