// A daemon for the shim's tests: speaks include/rocemu/abi/socket.h, knows no RDMA, and lies on
// demand. Everything that it observed can be read by the probe itself, as counters of the emulated
// sysfs, so that tests need no other channel and no sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rocemu/abi/doorbell.h"
#include "rocemu/abi/socket.h"

namespace rocemu::test {

/// How replies to kOpenDevice or kCommand go wrong. kNone: honest.
enum class Lie {
  kNone,
  kShortHeader,    ///< Half a header.
  kWrongMagic,     ///< Not the protocol.
  kWrongSequence,  ///< The answer to another question.
  kHugeLength,     ///< `length` beyond the message.
  kBadError,       ///< An error number that is none.
  kHangUp,         ///< No answer: the connection closes.
  kNoPayload,      ///< A header and nothing else.
  kTooFewFds,      ///< Descriptors are missing.
  kTooManyFds,     ///< Twenty of them.
  kHugeResponse,   ///< `response_bytes` beyond the message.
  kWideResponse,   ///< More response than the command has room for.
  kWildPatch,      ///< A patch to an address that the command does not name.
  kHugePatch,      ///< A patch longer than the message.
  kBadFdOffset,    ///< A descriptor to be stored outside the response.
  kUnaskedFd,      ///< A descriptor that nothing says where to store.
  kSmallDoorbell,  ///< A doorbell file smaller than announced.
  kManyShards,     ///< More shards than descriptors.
};

struct FakeOptions {
  Lie open_lie = Lie::kNone;
  Lie command_lie = Lie::kNone;
  int commands_before_lie = 0;  ///< Honest answers first.
  std::uint32_t shard_count = 1;
  std::uint32_t protocol_version = abi::kProtocolVersion;
};

/// The region that REREG_MR is refused for, with ENXIO.
inline constexpr std::uint32_t kRefusedMr = 0xdead;

/// The one slot of a QP that takes no send work requests.
inline constexpr std::uint32_t kSlotBelowRts = 999'999;

class FakeDaemon {
 public:
  explicit FakeDaemon(const FakeOptions& options);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& directory() const { return directory_; }

 private:
  struct Session;

  void accept_loop();
  void serve(int socket);
  bool answer(Session& session, const abi::MessageHeader& header,
              std::span<const std::byte> payload);
  bool answer_hello(Session& session, const abi::MessageHeader& header);
  bool answer_open(Session& session, const abi::MessageHeader& header,
                   std::span<const std::byte> payload);
  bool answer_command(Session& session, const abi::MessageHeader& header,
                      std::span<const std::byte> command);
  bool answer_sysfs(Session& session, const abi::MessageHeader& header,
                    std::span<const std::byte> payload);
  void count(const std::string& name, std::int64_t change);

  FakeOptions options_;
  std::string directory_;
  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
  std::thread acceptor_;
  std::mutex mutex_;
  std::map<int, std::thread> threads_;  // by socket
  std::vector<std::thread> finished_;
  std::map<std::string, std::int64_t> counters_;
  int commands_served_ = 0;
};

/// The worker's half of a doorbell page: drains, sleeps, is woken. The "ring" of QP slot s is two
/// words of `memory`: word s counts what was posted, word 2048 + s what the worker saw.
class FakeWorker {
 public:
  /// `on_arm`: called with each CQ slot that was armed.
  FakeWorker(DoorbellPage* page, int wake_fd, std::atomic<std::uint32_t>* memory);
  ~FakeWorker();

  std::uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  std::uint64_t arms() const { return arms_.load(std::memory_order_relaxed); }
  std::uint64_t sweeps() const { return sweeps_.load(std::memory_order_relaxed); }
  /// Doorbells are left alone while paused; the worker then looks as if it were awake and busy.
  void pause(bool is_paused) { is_paused_.store(is_paused, std::memory_order_release); }

  static constexpr std::uint32_t kSeen = 2048;  ///< Where the worker's words start.

 private:
  void loop();
  bool drain();
  void consume(std::uint32_t slot);
  void sleep_if_idle();

  DoorbellPage* page_;
  int wake_fd_;
  std::atomic<std::uint32_t>* memory_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_paused_{false};
  std::atomic<std::uint64_t> sleeps_{0};
  std::atomic<std::uint64_t> arms_{0};
  std::atomic<std::uint64_t> sweeps_{0};
  std::thread thread_;
};

}  // namespace rocemu::test
