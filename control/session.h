// The shim's socket: connections that are greeted, then become one verbs context or stay a process
// connection (sysfs reads, execve notices). One request at a time on a connection; a command that
// waits for a neighbour leaves its connection unread and everybody else served. The peer's pid and
// uid are the kernel's; a context ends with its connection or with its process, whichever comes
// first. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/device.h"
#include "control/event_loop.h"
#include "control/listener.h"
#include "control/unique_fd.h"
#include "control/uverbs/dispatch.h"
#include "control/verbs_context.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control {

/// Connections that are open, and how many there may be.
struct SessionLoad {
  std::size_t all = 0;
  std::size_t of_this_user = 0;
  std::size_t limit = 0;
};
/// One more may come: root and the daemon's own user may have all, another user half of them, so
/// that nobody locks everybody else out.
bool may_connect(const SessionLoad& load, bool is_owner);

class Sessions {
 public:
  struct Limits {
    std::uint32_t max_contexts = 1024;
  };
  /// The live text of a sysfs attribute, or an errno.
  using ReadAttribute = std::function<Result<std::string>(const std::string& attribute)>;

  /// Listens at `path`. EACCES and the like.
  static Result<std::unique_ptr<Sessions>> make(EventLoop& loop, const std::string& path,
                                                memory::AddressSpaces& spaces,
                                                std::vector<Device*> devices, const Limits& limits,
                                                ReadAttribute read_attribute);
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  /// A neighbour became known: commands that wait for it go on.
  void on_neighbour(const Device& device, const wire::Gid& gid);
  /// Ends a context: IBV_EVENT_DEVICE_FATAL, then the connection closes.
  void end_context(ContextId id);
  /// Calls `visit` for every open context.
  void for_each_context(const std::function<void(VerbsContext&)>& visit);
  std::uint32_t context_count() const { return context_count_; }

 private:
  struct Suspended {
    std::uint32_t sequence = 0;
    std::vector<std::byte> command;
    wire::Gid awaited{};
    std::uint32_t tries_left = 0;
    EventLoop::TimerId timer = 0;
  };
  struct Session {
    UniqueFd fd;
    UniqueFd pidfd;
    Peer peer;
    bool is_greeted = false;
    std::unique_ptr<VerbsContext> context;
    std::optional<Suspended> suspended;
  };
  struct Reply {
    int error = 0;
    std::span<const std::byte> payload;
    std::span<const int> fds;
  };

  Sessions(EventLoop& loop, std::string path, UniqueFd listener, memory::AddressSpaces& spaces,
           std::vector<Device*> devices, const Limits& limits, ReadAttribute read_attribute);

  void accept_session();
  void listen_to(Session& session);
  void on_ready(int fd, std::uint32_t events);
  /// False: the session is to end.
  bool handle(Session& session, const abi::MessageHeader& header,
              std::span<const std::byte> payload);
  bool on_hello(Session& session, const abi::MessageHeader& header,
                std::span<const std::byte> payload);
  bool on_open_device(Session& session, const abi::MessageHeader& header,
                      std::span<const std::byte> payload);
  bool on_command(Session& session, const abi::MessageHeader& header,
                  std::span<const std::byte> payload);
  bool on_read_sysfs(Session& session, const abi::MessageHeader& header,
                     std::span<const std::byte> payload);
  bool on_exec(Session& session, const abi::MessageHeader& header);

  bool run_command(Session& session, std::uint32_t sequence, std::span<const std::byte> command,
                   bool is_last_try);
  void suspend(Session& session, std::uint32_t sequence, std::span<const std::byte> command,
               const wire::Gid& awaited);
  void resume(int fd, bool is_timeout);
  bool reply(Session& session, abi::MessageType type, std::uint32_t sequence, const Reply& what);
  bool reply_command(Session& session, std::uint32_t sequence, const uverbs::Outcome& outcome);
  void drop(int fd);

  EventLoop& loop_;
  std::string path_;
  UniqueFd listener_;
  memory::AddressSpaces& spaces_;
  std::vector<Device*> devices_;
  Limits limits_;
  ReadAttribute read_attribute_;
  std::vector<std::byte> buffer_;
  std::unordered_map<int, Session> sessions_;
  std::uint32_t context_count_ = 0;
  std::uint32_t next_context_ = 0;
};

}  // namespace rocemu::control
