#include "control/session.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <spdlog/spdlog.h>

#include "rocemu/base/bytes.h"

namespace rocemu::control {
namespace {

// A neighbour is asked for this often before the command fails with ETIMEDOUT.
constexpr std::uint32_t kNeighbourTries = 3;
constexpr std::chrono::milliseconds kNeighbourWait{300};
// Connections beside contexts: short ones for sysfs, one a process for notices.
constexpr std::size_t kMaxOtherSessions = 1024;
constexpr std::uint32_t kEventDeviceFatal = 8;  // IBV_EVENT_DEVICE_FATAL

}  // namespace

bool may_connect(const SessionLoad& load, bool is_owner) {
  return load.all < load.limit && (is_owner || load.of_this_user < load.limit / 2);
}

Result<std::unique_ptr<Sessions>> Sessions::make(EventLoop& loop, const std::string& path,
                                                 memory::AddressSpaces& spaces,
                                                 std::vector<Device*> devices, const Limits& limits,
                                                 ReadAttribute read_attribute) {
  auto listener = listen_at(path, SOCK_SEQPACKET);
  if (!listener) return listener.error();
  return std::unique_ptr<Sessions>(new Sessions(loop, path, std::move(*listener), spaces,
                                                std::move(devices), limits,
                                                std::move(read_attribute)));
}

Sessions::Sessions(EventLoop& loop, std::string path, UniqueFd listener,
                   memory::AddressSpaces& spaces, std::vector<Device*> devices,
                   const Limits& limits, ReadAttribute read_attribute)
    : loop_(loop),
      path_(std::move(path)),
      listener_(std::move(listener)),
      spaces_(spaces),
      devices_(std::move(devices)),
      limits_(limits),
      read_attribute_(std::move(read_attribute)),
      buffer_(abi::kMaxMessageBytes) {
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_session(); });
}

Sessions::~Sessions() {
  loop_.remove(listener_.get());
  while (!sessions_.empty()) drop(sessions_.begin()->first);
  (void)::unlink(path_.c_str());
}

void Sessions::accept_session() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open()) return;
  const auto peer = peer_of(fd.get());
  if (!peer) return;
  const auto held = std::ranges::count_if(
      sessions_, [&](const auto& entry) { return entry.second.peer.uid == peer->uid; });
  const SessionLoad load{.all = sessions_.size(),
                         .of_this_user = static_cast<std::size_t>(held),
                         .limit = limits_.max_contexts + kMaxOtherSessions};
  if (!may_connect(load, peer->uid == 0 || peer->uid == ::geteuid())) return;
  Session& session = sessions_[fd.get()];
  session.fd = std::move(fd);
  session.peer = *peer;
  listen_to(session);
}

void Sessions::listen_to(Session& session) {
  const int fd = session.fd.get();
  loop_.remove(fd);
  // A suspended session is watched for its end only.
  loop_.add(fd, session.suspended ? 0u : static_cast<std::uint32_t>(EPOLLIN),
            [this, fd](std::uint32_t events) { on_ready(fd, events); });
}

void Sessions::on_ready(int fd, std::uint32_t events) {
  const auto found = sessions_.find(fd);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  if (session.suspended) {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) drop(fd);
    return;
  }
  iovec piece{buffer_.data(), buffer_.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;  // no room for descriptors: the kernel closes what a client sends
  const ssize_t n = ::recvmsg(fd, &message, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto size = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  if (size < sizeof(abi::MessageHeader) || (message.msg_flags & MSG_TRUNC) != 0) return drop(fd);
  const auto header = load<abi::MessageHeader>(buffer_.data());
  const auto payload = std::span<const std::byte>(buffer_).subspan(sizeof header);
  if (header.magic != abi::kMessageMagic || header.length != size - sizeof header ||
      !handle(session, header, payload.first(header.length))) {
    drop(fd);
  }
}

bool Sessions::handle(Session& session, const abi::MessageHeader& header,
                      std::span<const std::byte> payload) {
  if (header.type != abi::MessageType::kHello && !session.is_greeted) return false;
  switch (header.type) {
    case abi::MessageType::kHello:
      return on_hello(session, header, payload);
    case abi::MessageType::kOpenDevice:
      return on_open_device(session, header, payload);
    case abi::MessageType::kCommand:
      return on_command(session, header, payload);
    case abi::MessageType::kReadSysfs:
      return on_read_sysfs(session, header, payload);
    case abi::MessageType::kExecNotice:
    case abi::MessageType::kExecFailed:
      return on_exec(session, header);
  }
  return false;
}

bool Sessions::on_hello(Session& session, const abi::MessageHeader& header,
                        std::span<const std::byte> payload) {
  if (payload.size() != sizeof(abi::HelloRequest)) return false;
  const auto request = load<abi::HelloRequest>(payload.data());
  const abi::HelloReply hello{abi::kProtocolVersion, static_cast<std::uint32_t>(devices_.size())};
  const bool is_same = request.protocol_version == abi::kProtocolVersion;
  if (!is_same) {
    spdlog::warn("pid {}: the shim speaks protocol {}, the daemon {}", session.peer.pid,
                 request.protocol_version, abi::kProtocolVersion);
  }
  session.is_greeted = is_same;
  return reply(
      session, header.type, header.sequence,
      {.error = is_same ? 0 : EPROTO, .payload = std::as_bytes(std::span(&hello, 1)), .fds = {}});
}

bool Sessions::on_open_device(Session& session, const abi::MessageHeader& header,
                              std::span<const std::byte> payload) {
  if (payload.size() != sizeof(abi::OpenDeviceRequest) || session.context) return false;
  const auto request = load<abi::OpenDeviceRequest>(payload.data());
  const auto refuse = [&](int error) {
    return reply(session, header.type, header.sequence, {.error = error, .payload = {}, .fds = {}});
  };
  if (request.device_index >= devices_.size()) return refuse(ENODEV);
  if (context_count_ >= limits_.max_contexts) return refuse(EMFILE);
  session.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, session.peer.pid, 0)));
  if (!session.pidfd.is_open()) return refuse(errno);
  Device& device = *devices_[request.device_index];
  auto context = VerbsContext::open(
      device, spaces_, {ContextId{++next_context_}, session.peer.pid, session.peer.uid});
  if (!context) {
    spdlog::warn("pid {}: cannot open {}: {}", session.peer.pid, device.config.name,
                 context.error().text);
    return refuse(context.error().code);
  }
  session.context = std::move(*context);
  ++context_count_;
  loop_.add(session.pidfd.get(), EPOLLIN,
            [this, fd = session.fd.get()](std::uint32_t) { drop(fd); });
  spdlog::info("pid {}: opened {}", session.peer.pid, device.config.name);
  const abi::OpenDeviceReply opened{.shard_count = 1,
                                    .reserved = 0,
                                    .context_bytes = ContextMemory::kBytes,
                                    .doorbell_bytes = session.context->doorbell_bytes()};
  const std::array fds = {session.context->memory_fd(), session.context->doorbell_fd(),
                          session.context->wake_fd()};
  return reply(session, header.type, header.sequence,
               {.error = 0, .payload = std::as_bytes(std::span(&opened, 1)), .fds = fds});
}

bool Sessions::on_command(Session& session, const abi::MessageHeader& header,
                          std::span<const std::byte> payload) {
  if (!session.context) return false;
  return run_command(session, header.sequence, payload, false);
}

bool Sessions::run_command(Session& session, std::uint32_t sequence,
                           std::span<const std::byte> command, bool is_last_try) {
  const uverbs::Outcome outcome = uverbs::execute(*session.context, command, is_last_try);
  if (outcome.error == uverbs::kSuspended) {
    suspend(session, sequence, command, outcome.awaited);
    return true;
  }
  return reply_command(session, sequence, outcome);
}

void Sessions::suspend(Session& session, std::uint32_t sequence, std::span<const std::byte> command,
                       const wire::Gid& awaited) {
  Suspended waiting{.sequence = sequence,
                    .command = {command.begin(), command.end()},
                    .awaited = awaited,
                    .tries_left = kNeighbourTries,
                    .timer = 0};
  const int fd = session.fd.get();
  waiting.timer = loop_.after(kNeighbourWait, [this, fd] { resume(fd, true); });
  session.suspended = std::move(waiting);
  listen_to(session);
}

void Sessions::resume(int fd, bool is_timeout) {
  const auto found = sessions_.find(fd);
  if (found == sessions_.end() || !found->second.suspended) return;
  Session& session = found->second;
  Suspended waiting = std::move(*session.suspended);
  session.suspended.reset();
  loop_.cancel(waiting.timer);
  if (is_timeout) --waiting.tries_left;
  if (!run_command(session, waiting.sequence, waiting.command, waiting.tries_left == 0)) {
    return drop(fd);
  }
  if (session.suspended) {
    session.suspended->tries_left = waiting.tries_left;
  } else {
    listen_to(session);
  }
}

void Sessions::on_neighbour(const Device& device, const wire::Gid& gid) {
  std::vector<int> ready;
  for (const auto& [fd, session] : sessions_) {
    if (session.suspended && session.suspended->awaited == gid &&
        &session.context->device == &device) {
      ready.push_back(fd);
    }
  }
  for (const int fd : ready) resume(fd, false);
}

bool Sessions::reply_command(Session& session, std::uint32_t sequence,
                             const uverbs::Outcome& outcome) {
  const auto response_bytes = static_cast<std::uint32_t>(outcome.response.size());
  const abi::CommandReply head{.response_bytes = response_bytes,
                               .patch_count = static_cast<std::uint32_t>(outcome.patches.size()),
                               .fd_offset = outcome.fd_offset,
                               .channel_handle = outcome.channel_handle,
                               .written = outcome.written};
  std::vector<std::byte> payload(sizeof head + response_bytes);
  store(payload.data(), head);
  std::copy(outcome.response.begin(), outcome.response.end(), payload.begin() + sizeof head);
  for (const uverbs::Patch& patch : outcome.patches) {
    const std::size_t at = payload.size();
    const auto length = static_cast<std::uint32_t>(patch.bytes.size());
    payload.resize(at + sizeof(abi::Patch) + (patch.bytes.size() + 7) / 8 * 8);
    store(payload.data() + at, abi::Patch{patch.address, length, 0});
    std::copy(patch.bytes.begin(), patch.bytes.end(), payload.begin() + at + sizeof(abi::Patch));
  }
  const int fd = outcome.fd.get();
  return reply(
      session, abi::MessageType::kCommand, sequence,
      {.error = outcome.error,
       .payload = payload,
       .fds = outcome.fd.is_open() ? std::span<const int>(&fd, 1) : std::span<const int>()});
}

bool Sessions::on_read_sysfs(Session& session, const abi::MessageHeader& header,
                             std::span<const std::byte> payload) {
  const std::string attribute(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto text = read_attribute_(attribute);
  if (!text) {
    return reply(session, header.type, header.sequence,
                 {.error = text.error().code, .payload = {}, .fds = {}});
  }
  return reply(session, header.type, header.sequence,
               {.error = 0,
                .payload = std::as_bytes(std::span(text.value().data(), text.value().size())),
                .fds = {}});
}

bool Sessions::on_exec(Session& session, const abi::MessageHeader& header) {
  // A process speaks for its own contexts only.
  for (auto& [fd, other] : sessions_) {
    if (!other.context || other.peer.pid != session.peer.pid) continue;
    if (header.type == abi::MessageType::kExecNotice) {
      other.context->suspend_memory();
    } else {
      other.context->resume_memory();
    }
  }
  return reply(session, header.type, header.sequence, {.error = 0, .payload = {}, .fds = {}});
}

bool Sessions::reply(Session& session, abi::MessageType type, std::uint32_t sequence,
                     const Reply& what) {
  const abi::MessageHeader header{.magic = abi::kMessageMagic,
                                  .type = type,
                                  .sequence = sequence,
                                  .length = static_cast<std::uint32_t>(what.payload.size()),
                                  .error = what.error,
                                  .reserved = 0};
  iovec pieces[2] = {{const_cast<abi::MessageHeader*>(&header), sizeof header},
                     {const_cast<std::byte*>(what.payload.data()), what.payload.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = what.payload.empty() ? 1 : 2;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(abi::kMaxMessageFds * sizeof(int))] = {};
  if (!what.fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(what.fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(what.fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), what.fds.data(), what.fds.size_bytes());
  }
  // One answer a request fits the socket's buffer; a client that lets answers pile up is ended.
  return ::sendmsg(session.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

void Sessions::end_context(ContextId id) {
  for (auto& [fd, session] : sessions_) {
    if (!session.context || session.context->identity.id != id) continue;
    spdlog::error("pid {}: its ring memory failed; the context is ended", session.peer.pid);
    session.context->push_async(0, kEventDeviceFatal);
    return drop(fd);
  }
}

void Sessions::for_each_context(const std::function<void(VerbsContext&)>& visit) {
  for (auto& [fd, session] : sessions_) {
    if (session.context) visit(*session.context);
  }
}

void Sessions::drop(int fd) {
  const auto found = sessions_.find(fd);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  loop_.remove(fd);
  if (session.suspended) loop_.cancel(session.suspended->timer);
  if (session.context) {
    loop_.remove(session.pidfd.get());
    spdlog::info("pid {}: closed {}", session.peer.pid, session.context->device.config.name);
    session.context.reset();
    --context_count_;
  }
  sessions_.erase(found);
}

}  // namespace rocemu::control
