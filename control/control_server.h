// The socket of the rocemu tool: one JSON object a line each way. Any user may ask; what changes
// the daemon is for root and for the user that it runs as. This file is the transport: what the
// requests mean is the handler's business. Control thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "control/event_loop.h"
#include "control/unique_fd.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

class ControlServer {
 public:
  struct Request {
    std::string line;            ///< Without the newline.
    bool may_change_it = false;  ///< The peer may change the daemon, not only look.
  };
  /// Returns the answer's line.
  using Handler = std::function<std::string(const Request& request)>;

  /// Listens at `path`, replacing what is there. EADDRINUSE, EACCES and the like.
  static Result<std::unique_ptr<ControlServer>> make(EventLoop& loop, const std::string& path,
                                                     Handler handler);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Client {
    UniqueFd fd;
    std::string input;
    std::string output;
    bool may_change_it = false;
    bool is_input_over = false;
    bool waits_for_room = false;
  };

  ControlServer(EventLoop& loop, std::string path, UniqueFd listener, Handler handler);
  void accept_client();
  void on_ready(int fd, std::uint32_t events);
  bool read_from(Client& client);
  bool write_to(Client& client);
  void watch(Client& client);
  void drop(int fd);

  EventLoop& loop_;
  std::string path_;
  UniqueFd listener_;
  Handler handler_;
  std::unordered_map<int, Client> clients_;
};

}  // namespace rocemu::control
