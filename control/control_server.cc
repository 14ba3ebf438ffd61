#include "control/control_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "control/listener.h"

namespace rocemu::control {
namespace {

constexpr std::size_t kMaxLineBytes = 64 * 1024;
// An answer may be large (all QPs); a client that does not read it is dropped at this much.
constexpr std::size_t kMaxOutputBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxClients = 64;

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::make(EventLoop& loop, const std::string& path,
                                                           Handler handler) {
  auto listener = listen_at(path, SOCK_STREAM);
  if (!listener) return listener.error();
  return std::unique_ptr<ControlServer>(
      new ControlServer(loop, path, std::move(*listener), std::move(handler)));
}

ControlServer::ControlServer(EventLoop& loop, std::string path, UniqueFd listener, Handler handler)
    : loop_(loop),
      path_(std::move(path)),
      listener_(std::move(listener)),
      handler_(std::move(handler)) {
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_client(); });
}

ControlServer::~ControlServer() {
  loop_.remove(listener_.get());
  for (auto& [fd, client] : clients_) loop_.remove(fd);
  (void)::unlink(path_.c_str());
}

void ControlServer::accept_client() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open() || clients_.size() >= kMaxClients) return;
  const auto peer = peer_of(fd.get());
  if (!peer) return;
  const int number = fd.get();
  Client& client = clients_[number];
  client.fd = std::move(fd);
  client.may_change_it = peer->uid == 0 || peer->uid == ::geteuid();
  watch(client);
}

void ControlServer::watch(Client& client) {
  const int fd = client.fd.get();
  const bool is_full = !client.output.empty();
  loop_.remove(fd);
  loop_.add(fd, is_full ? EPOLLOUT : EPOLLIN,
            [this, fd](std::uint32_t events) { on_ready(fd, events); });
  client.waits_for_room = is_full;
}

void ControlServer::on_ready(int fd, std::uint32_t events) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if ((events & EPOLLIN) != 0 && !read_from(client)) return drop(fd);
  if (!write_to(client)) return drop(fd);
  if (client.output.empty() && (client.is_input_over || (events & EPOLLERR) != 0)) return drop(fd);
  if (client.waits_for_room != !client.output.empty()) watch(client);
}

// False when the client is to be dropped.
bool ControlServer::read_from(Client& client) {
  char buffer[4096];
  const ssize_t n = ::read(client.fd.get(), buffer, sizeof buffer);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) {
    client.is_input_over = true;
    return true;
  }
  client.input.append(buffer, static_cast<std::size_t>(n));
  for (std::size_t end; (end = client.input.find('\n')) != std::string::npos;) {
    std::string line = client.input.substr(0, end);
    client.input.erase(0, end + 1);
    client.output += handler_({std::move(line), client.may_change_it}) + "\n";
    if (client.output.size() > kMaxOutputBytes) return false;
  }
  return client.input.size() <= kMaxLineBytes;
}

bool ControlServer::write_to(Client& client) {
  std::size_t sent = 0;
  while (sent < client.output.size()) {
    const ssize_t n = ::send(client.fd.get(), client.output.data() + sent,
                             client.output.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    if (n < 0) break;
    sent += static_cast<std::size_t>(n);
  }
  client.output.erase(0, sent);
  return true;
}

void ControlServer::drop(int fd) {
  loop_.remove(fd);
  clients_.erase(fd);
}

}  // namespace rocemu::control
