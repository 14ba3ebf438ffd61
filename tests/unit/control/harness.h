// A daemon in a thread of the test, and a client that speaks the shim's protocol to it without a
// shim, so that it can also speak it wrongly. The client is the test's own process: its memory is
// the memory that is registered.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "control/config.h"
#include "control/unique_fd.h"
#include "rocemu/abi/doorbell.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control::testing {

/// A directory that goes with its object.
class TemporaryDir {
 public:
  TemporaryDir();
  ~TemporaryDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Serves from construction to destruction. Throws std::runtime_error as the daemon does.
class RunningDaemon {
 public:
  RunningDaemon();
  ~RunningDaemon();

  std::string path(const char* name) const { return directory_.path() + "/" + name; }
  /// One request of the tool.
  nlohmann::json ask(const nlohmann::json& request) const;
  nlohmann::json objects(std::size_t device) const;
  /// Asks until all object counts of all devices are zero; false after 5 seconds.
  bool becomes_empty() const;

 private:
  TemporaryDir directory_;
  UniqueFd stop_;
  std::thread thread_;
};

struct Answer {
  bool is_there = false;  ///< False: the daemon closed the connection.
  abi::MessageHeader header{};
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;
};

class Client {
 public:
  explicit Client(const RunningDaemon& daemon);

  /// Sends bytes as they are, as one message.
  void send_raw(std::span<const std::byte> bytes);
  Answer receive();
  Answer call(abi::MessageType type, std::span<const std::byte> payload);
  void hello();
  /// Greets and opens uverbs<device>; keeps the context's descriptors.
  void open(std::uint32_t device);
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

  /// What a command came to: the errno and the response's bytes.
  struct Outcome {
    int error = -1;
    std::vector<std::byte> response;
    UniqueFd fd;
    std::uint32_t channel_handle = 0;
    struct Patch {
      std::uint64_t address = 0;
      std::vector<std::byte> bytes;
    };
    std::vector<Patch> patches;

    template <typename T>
    T as(std::size_t offset = 0) const {
      T out{};
      if (offset < response.size()) {
        std::memcpy(&out, response.data() + offset, std::min(sizeof out, response.size() - offset));
      }
      return out;
    }
  };
  Outcome command(std::span<const std::byte> bytes);
  /// A plain command: `core` after the header, room for `out_bytes`.
  template <typename T>
  Outcome plain(std::uint32_t number, const T& core, std::size_t out_bytes) {
    return command(
        frame_plain(number, {reinterpret_cast<const std::byte*>(&core), sizeof core}, out_bytes));
  }
  static std::vector<std::byte> frame_plain(std::uint32_t number, std::span<const std::byte> core,
                                            std::size_t out_bytes);
  static std::vector<std::byte> frame_extended(std::uint32_t number,
                                               std::span<const std::byte> core,
                                               std::size_t out_bytes, std::size_t driver_bytes);

  // Objects, made with defaults; each fails the test when the daemon refuses.
  void get_context();
  std::uint32_t alloc_pd();
  ib_uverbs_create_cq_resp create_cq(std::uint32_t cqe, std::int32_t channel, std::uint64_t cookie);
  ib_uverbs_create_qp_resp create_qp(std::uint32_t pd, std::uint32_t cq);
  int modify_qp(const ib_uverbs_modify_qp& in);
  /// RESET to INIT; then to RTR with `destination` over GID index `gid_index`.
  int to_init(std::uint32_t qp);
  int to_rtr(std::uint32_t qp, std::uint32_t remote_qpn, const std::string& destination,
             std::uint8_t gid_index);
  static ib_uverbs_modify_qp rtr_request(std::uint32_t qp, std::uint32_t remote_qpn,
                                         const std::string& destination, std::uint8_t gid_index);

  UniqueFd context_fd;
  UniqueFd doorbell_fd;
  UniqueFd wake_fd;
  UniqueFd async_fd;

 private:
  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace rocemu::control::testing
