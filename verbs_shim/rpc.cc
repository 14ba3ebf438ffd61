// The socket's client side. Receives time out once a second only to look whether the user wants to
// stop a program whose daemon hangs: signals are blocked meanwhile, and nothing else would end the
// wait.
#include "verbs_shim/rpc.h"

#include <sys/time.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "verbs_shim/fd_table.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

constexpr int kMaxErrno = 4095;
constexpr int kPatientSeconds = 10;

int send_all(int fd, const abi::MessageHeader& header, std::span<const std::byte> payload) {
  iovec pieces[2] = {{const_cast<abi::MessageHeader*>(&header), sizeof header},
                     {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  for (;;) {
    const ssize_t sent = sys::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      return static_cast<std::size_t>(sent) == sizeof header + payload.size() ? 0 : EIO;
    }
    if (errno == EFAULT) return EFAULT;
    if (errno != EINTR && errno != EAGAIN) return EIO;
  }
}

bool does_user_want_out() {
  sigset_t pending;
  if (sigpending(&pending) != 0) return false;
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
    if (sigismember(&pending, signal) == 1) return true;
  }
  return false;
}

// Receives one message whole. Returns its size, or -1.
ssize_t receive(int fd, msghdr& message) {
  const msghdr pristine = message;
  for (int seconds = 0;;) {
    message = pristine;
    const ssize_t received = sys::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (received >= 0) return received;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return -1;
    if (++seconds >= kPatientSeconds && does_user_want_out()) return -1;
  }
}

void collect_fds(const msghdr& message, Reply& reply) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      if (reply.fd_count < abi::kMaxMessageFds) {
        reply.fds[reply.fd_count++] = fd;
      } else {
        sys::close(fd);
      }
    }
  }
  reply.is_fd_lost = (message.msg_flags & MSG_CTRUNC) != 0;
}

// Returns the daemon's error, 0, or -1 when the reply is not one.
int check_reply(const abi::MessageHeader& header, ssize_t received, int flags,
                std::uint32_t sequence) {
  if (received < static_cast<ssize_t>(sizeof header)) return -1;
  if ((flags & MSG_TRUNC) != 0) return -1;
  if (header.magic != abi::kMessageMagic) return -1;
  if (header.sequence != sequence) return -1;
  if (header.length != static_cast<std::size_t>(received) - sizeof header) return -1;
  if (header.error < 0 || header.error > kMaxErrno) return -1;
  return header.error;
}

int open_socket(Connection& connection) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s",
                                   runtime_directory(), abi::kSocketName);
  if (length <= 0 || static_cast<std::size_t>(length) >= sizeof address.sun_path) {
    return ENAMETOOLONG;
  }
  int fd = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  fd = hide_fd(fd);
  if (fd < 0) return errno;
  connection.fd = fd;
  connection.sequence = 0;
  int outcome = 0;
  do {
    outcome = sys::connect(fd, &address, sizeof address);
  } while (outcome != 0 && errno == EINTR);
  const int error = outcome == 0 ? 0 : errno;
  if (error != 0) disconnect(connection);
  return error;
}

// A directory that anybody could have made, such as one in /tmp, must not hand the program over to
// another user's daemon.
bool is_trusted(const Connection& connection) {
  if (is_runtime_directory_explicit()) return true;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

int greet(Connection& connection) {
  const abi::HelloRequest request{abi::kProtocolVersion, 0};
  std::byte buffer[sizeof(abi::MessageHeader) + sizeof(abi::HelloReply)];
  Reply reply;
  const int error = call(connection, abi::MessageType::kHello,
                         std::as_bytes(std::span(&request, 1)), buffer, reply);
  if (error != 0) return error;
  close_fds(reply);
  abi::HelloReply hello{};
  if (reply.payload.size() != sizeof hello) return EPROTO;
  std::memcpy(&hello, reply.payload.data(), sizeof hello);
  return hello.protocol_version == abi::kProtocolVersion ? 0 : EPROTO;
}

void set_tick(int fd) {
  const timeval second{1, 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
}

}  // namespace

int connect_daemon(Connection& connection) {
  int error = open_socket(connection);
  if (error == 0) {
    set_tick(connection.fd);
    error = is_trusted(connection) ? greet(connection) : EACCES;
    if (error != 0) disconnect(connection);
  }
  if (error == 0 || error == EMFILE || error == ENFILE) return error;
  complain_no_daemon(error);
  return ENODEV;
}

void disconnect(Connection& connection) {
  close_hidden_fd(connection.fd);
  connection.fd = -1;
}

void disconnect_and_wait(Connection& connection) {
  if (connection.fd < 0) return;
  if (::shutdown(connection.fd, SHUT_WR) == 0) {
    std::byte ignored[1];
    iovec piece{ignored, sizeof ignored};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    (void)sys::recvmsg(connection.fd, &message, 0);  // end of file, or the socket's time-out
  }
  disconnect(connection);
}

int call(Connection& connection, abi::MessageType type, std::span<const std::byte> request,
         std::span<std::byte> buffer, Reply& reply) {
  if (connection.fd < 0) return EIO;
  const std::uint32_t sequence = ++connection.sequence;
  const abi::MessageHeader header{
      abi::kMessageMagic, type, sequence, static_cast<std::uint32_t>(request.size()), 0, 0};
  int error = send_all(connection.fd, header, request);
  if (error == EFAULT) return EFAULT;  // nothing was sent
  if (error != 0) {
    disconnect(connection);
    return EIO;
  }

  iovec piece{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * abi::kMaxMessageFds)];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = receive(connection.fd, message);
  if (received < 0) {
    disconnect(connection);
    return EIO;
  }
  collect_fds(message, reply);
  abi::MessageHeader answer{};
  std::memcpy(&answer, buffer.data(), sizeof answer);
  error = check_reply(answer, received, message.msg_flags, sequence);
  if (error != 0) close_fds(reply);
  if (error < 0) {
    disconnect(connection);
    return EIO;
  }
  reply.payload = buffer.subspan(sizeof answer, answer.length);
  return error;
}

pid_t daemon_pid(const Connection& connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(connection.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

void close_fds(Reply& reply) {
  for (std::size_t i = 0; i < reply.fd_count; ++i) sys::close(reply.fds[i]);
  reply.fd_count = 0;
}

bool is_daemon_there() {
  static constinit std::atomic<bool> was_there{false};
  if (was_there.load(std::memory_order_relaxed)) return true;
  const int saved = errno;
  const sys::SignalGuard guard;
  Connection connection;
  const bool is_there = connect_daemon(connection) == 0;
  disconnect(connection);
  if (is_there) was_there.store(true, std::memory_order_relaxed);
  errno = saved;
  return is_there;
}

}  // namespace rocemu::shim
