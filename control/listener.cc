#include "control/listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rocemu::control {
namespace {

constexpr int kBacklog = 128;

std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

void remove_stale_socket(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return;
  // Two of the types that a listener may have; asking with the wrong one is EPROTOTYPE.
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) {
      return;
    }
    if (errno == ECONNREFUSED) {
      (void)::unlink(path.c_str());
      return;
    }
  }
}

Result<UniqueFd> listen_at(const std::string& path, int type) {
  const auto address = address_of(path);
  if (!address) {
    return Error{ENAMETOOLONG, path + ": longer than a socket's path may be (107 bytes)"};
  }
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)::unlink(path.c_str());
  if (!fd.is_open() ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return Error{errno, path + ": " + std::strerror(errno)};
  }
  return fd;
}

std::optional<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0 ||
      credentials.pid <= 0) {
    return std::nullopt;
  }
  return Peer{credentials.pid, credentials.uid};
}

}  // namespace rocemu::control
