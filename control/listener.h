// Unix sockets that the daemon listens on, and who is at the other end of a connection: the kernel
// says it, not the peer.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "control/unique_fd.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// Listens at `path`, non-blocking, open to every user, replacing what is there. `type`:
/// SOCK_STREAM or SOCK_SEQPACKET. ENAMETOOLONG, EACCES and the like.
Result<UniqueFd> listen_at(const std::string& path, int type);

/// Removes the file of a socket that nobody listens at any more; such a file would keep the next
/// server from its place.
void remove_stale_socket(const std::string& path);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
/// Who connected; nothing when the kernel does not know (another pid namespace).
std::optional<Peer> peer_of(int fd);

}  // namespace rocemu::control
