// The fake daemon's sockets and answers. One thread a connection; a connection's objects go with
// it, and only then is its end closed: the shim waits for that.
#include "tests/unit/shim/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "rocemu/base/bytes.h"

namespace rocemu::test {
namespace {

constexpr std::size_t kContextBytes = 64 * 1024;
constexpr std::size_t kDoorbellBytes = (sizeof(DoorbellPage) + 4095) / 4096 * 4096;

void must(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

int make_memfd(std::size_t bytes) {
  const int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  must(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0, "memfd");
  must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "seals");
  return fd;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

// Enough of sysfs for libibverbs to list two devices and for the probe to look around in.
void write_tree(const std::filesystem::path& root) {
  write_file(root / "class/infiniband_verbs/abi_version", "6");
  for (int i = 0; i < 2; ++i) {
    const std::string n = std::to_string(i);
    const auto verbs = root / "class/infiniband_verbs" / ("uverbs" + n);
    write_file(verbs / "ibdev", "roce" + n);
    write_file(verbs / "dev", "231:" + std::to_string(192 + i));
    write_file(verbs / "abi_version", "1");
    const auto device = root / "class/infiniband" / ("roce" + n);
    write_file(device / "node_type", "1: CA");
    write_file(device / "device/modalias", "rdma_device:Nrxe_roce" + n);
    write_file(device / "node_guid", "0000:52ff:fe6f:000" + n);
    write_file(device / "ports/1/state", "4: ACTIVE");
    write_file(device / "ports/1/counters/port_xmit_data", "stale");
    write_file(device / "ports/1/hw_counters/out_of_sequence", "stale");
    std::filesystem::create_symlink("ports/1/state", device / "a_link");
  }
}

void send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * abi::kMaxMessageFds)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  (void)sendmsg(socket, &message, MSG_NOSIGNAL);
}

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

// One connection and, once it opened a device, the context that it is.
struct FakeDaemon::Session {
  int socket = -1;
  bool is_context = false;
  int context_fd = -1;
  void* context_memory = MAP_FAILED;
  struct Shard {
    int doorbell_fd = -1;
    int wake_fd = -1;
    void* page = MAP_FAILED;
    std::unique_ptr<FakeWorker> worker;
  };
  std::vector<Shard> shards;
  std::vector<int> pipes;

  ~Session() {
    for (Shard& shard : shards) {
      shard.worker.reset();
      if (shard.page != MAP_FAILED) munmap(shard.page, kDoorbellBytes);
      close(shard.doorbell_fd);
      close(shard.wake_fd);
    }
    if (context_memory != MAP_FAILED) munmap(context_memory, kContextBytes);
    if (context_fd >= 0) close(context_fd);
    for (const int fd : pipes) close(fd);
  }

  // Sends a reply, spoiled as `lie` asks.
  bool reply(const abi::MessageHeader& request, int error, std::span<const std::byte> payload,
             std::span<const int> fds = {}, Lie lie = Lie::kNone) {
    abi::MessageHeader header{abi::kMessageMagic,
                              request.type,
                              request.sequence,
                              static_cast<std::uint32_t>(payload.size()),
                              error,
                              0};
    std::vector<int> sent(fds.begin(), fds.end());
    switch (lie) {
      case Lie::kWrongMagic:
        header.magic = 0x12345678;
        break;
      case Lie::kWrongSequence:
        ++header.sequence;
        break;
      case Lie::kHugeLength:
        header.length = 0xffff'ffff;
        break;
      case Lie::kBadError:
        header.error = -5;
        break;
      case Lie::kNoPayload:
        payload = {};
        header.length = 0;
        break;
      case Lie::kTooFewFds:
        if (!sent.empty()) sent.pop_back();
        break;
      case Lie::kTooManyFds:
        while (sent.size() < abi::kMaxMessageFds) sent.push_back(context_fd);
        break;
      case Lie::kHangUp:
        return false;
      default:
        break;
    }
    std::vector<std::byte> bytes;
    append(bytes, header);
    if (lie == Lie::kShortHeader) bytes.resize(sizeof header / 2);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    send_message(socket, bytes, sent);
    return true;
  }
};

FakeDaemon::FakeDaemon(const FakeOptions& options) : options_(options) {
  char name[] = "/tmp/rocemu-shim-test-XXXXXX";
  must(mkdtemp(name) != nullptr, "mkdtemp");
  directory_ = name;
  write_tree(std::filesystem::path(directory_) / abi::kSysfsName);

  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", name, abi::kSocketName);
  must(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
  must(listen(listener_, 64) == 0, "listen");
  must(pipe2(stop_pipe_, O_CLOEXEC) == 0, "pipe");
  acceptor_ = std::thread([this] { accept_loop(); });
}

FakeDaemon::~FakeDaemon() {
  close(stop_pipe_[1]);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, thread] : threads_) shutdown(fd, SHUT_RDWR);
  }
  for (;;) {
    std::thread last;
    {
      const std::lock_guard lock(mutex_);
      if (threads_.empty()) break;
      last = std::move(threads_.begin()->second);
      threads_.erase(threads_.begin());
    }
    last.join();
  }
  for (auto& thread : finished_) thread.join();
  close(listener_);
  close(stop_pipe_[0]);
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::accept_loop() {
  for (;;) {
    pollfd waits[2] = {{listener_, POLLIN, 0}, {stop_pipe_[0], POLLIN, 0}};
    (void)poll(waits, 2, -1);
    if (waits[1].revents != 0) return;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    std::vector<std::thread> finished;
    {
      const std::lock_guard lock(mutex_);
      finished.swap(finished_);
      threads_[fd] = std::thread([this, fd] { serve(fd); });
    }
    for (auto& thread : finished) thread.join();
  }
}

void FakeDaemon::serve(int socket) {
  bool was_context = false;
  {
    Session session;
    session.socket = socket;
    std::vector<std::byte> buffer(abi::kMaxMessageBytes);
    for (;;) {
      const ssize_t received = recv(socket, buffer.data(), buffer.size(), 0);
      if (received < static_cast<ssize_t>(sizeof(abi::MessageHeader))) break;
      const auto header = load<abi::MessageHeader>(buffer.data());
      const auto payload = std::span<const std::byte>(buffer).subspan(
          sizeof header, static_cast<std::size_t>(received) - sizeof header);
      if (header.magic != abi::kMessageMagic || header.length != payload.size()) break;
      if (!answer(session, header, payload)) break;
    }
    was_context = session.is_context;
  }
  if (was_context) count("open_contexts", -1);
  const std::lock_guard lock(mutex_);
  if (const auto self = threads_.find(socket); self != threads_.end()) {
    finished_.push_back(std::move(self->second));
    threads_.erase(self);
  }
  close(socket);
}

void FakeDaemon::count(const std::string& name, std::int64_t change) {
  const std::lock_guard lock(mutex_);
  counters_[name] += change;
}

bool FakeDaemon::answer(Session& session, const abi::MessageHeader& header,
                        std::span<const std::byte> payload) {
  switch (header.type) {
    case abi::MessageType::kHello:
      return answer_hello(session, header);
    case abi::MessageType::kOpenDevice:
      return answer_open(session, header, payload);
    case abi::MessageType::kCommand:
      return answer_command(session, header, payload);
    case abi::MessageType::kReadSysfs:
      return answer_sysfs(session, header, payload);
    case abi::MessageType::kExecNotice:
      count("exec_notices", 1);
      return session.reply(header, 0, {});
    case abi::MessageType::kExecFailed:
      count("exec_failures", 1);
      return session.reply(header, 0, {});
  }
  return false;
}

bool FakeDaemon::answer_hello(Session& session, const abi::MessageHeader& header) {
  const abi::HelloReply reply{options_.protocol_version, 2};
  return session.reply(header, 0, std::as_bytes(std::span(&reply, 1)));
}

bool FakeDaemon::answer_open(Session& session, const abi::MessageHeader& header,
                             std::span<const std::byte> payload) {
  const auto request = load<abi::OpenDeviceRequest>(payload.data());
  if (request.device_index == 1) return session.reply(header, EACCES, {});  // "not for you"

  session.context_fd = make_memfd(kContextBytes);
  session.context_memory =
      mmap(nullptr, kContextBytes, PROT_READ | PROT_WRITE, MAP_SHARED, session.context_fd, 0);
  std::vector<int> fds{session.context_fd};
  for (std::uint32_t i = 0; i < options_.shard_count; ++i) {
    Session::Shard shard;
    shard.doorbell_fd =
        make_memfd(options_.open_lie == Lie::kSmallDoorbell ? 4096 : kDoorbellBytes);
    shard.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (options_.open_lie != Lie::kSmallDoorbell) {
      shard.page =
          mmap(nullptr, kDoorbellBytes, PROT_READ | PROT_WRITE, MAP_SHARED, shard.doorbell_fd, 0);
      auto* page = static_cast<DoorbellPage*>(shard.page);
      page->magic = kDoorbellMagic;
      page->version = kDoorbellVersion;
      for (std::uint32_t slot = 0; slot < kMaxQpSlots; ++slot) {
        page->qp_takes_sends[slot].store(slot == kSlotBelowRts ? 0 : 1, std::memory_order_relaxed);
      }
      auto* words = static_cast<std::atomic<std::uint32_t>*>(session.context_memory) +
                    std::size_t{i} * 2 * FakeWorker::kSeen;
      shard.worker = std::make_unique<FakeWorker>(page, shard.wake_fd, words);
    }
    fds.push_back(shard.doorbell_fd);
    fds.push_back(shard.wake_fd);
    session.shards.push_back(std::move(shard));
  }
  abi::OpenDeviceReply reply{options_.shard_count, 0, kContextBytes, kDoorbellBytes};
  if (options_.open_lie == Lie::kManyShards) reply.shard_count = 1000;
  session.is_context = true;
  count("open_contexts", 1);
  count("opens", 1);
  return session.reply(header, 0, std::as_bytes(std::span(&reply, 1)), fds, options_.open_lie);
}

namespace {

// What the fake answers to a command: a response, perhaps a descriptor, perhaps a patch.
struct Answer {
  int error = 0;
  std::vector<std::byte> response;
  int fd = -1;
  std::uint32_t channel_handle = 0;
  std::uint64_t patch_address = 0;
  std::vector<std::byte> patch;
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(0xa0 + i % 16);
  return out;
}

std::size_t response_room(std::span<const std::byte> command) {
  const auto header = load<ib_uverbs_cmd_hdr>(command.data());
  if ((header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) == 0) return header.out_words * 4u;
  const auto ex = load<ib_uverbs_ex_cmd_hdr>(command.data() + sizeof header);
  return (header.out_words + ex.provider_out_words) * 8u;
}

std::vector<std::byte> encode(const Answer& answer, std::size_t command_bytes, Lie lie) {
  abi::CommandReply head{static_cast<std::uint32_t>(answer.response.size()),
                         answer.patch.empty() ? 0u : 1u, answer.fd < 0 ? abi::kNoFd : 0u,
                         answer.channel_handle, command_bytes};
  if (lie == Lie::kHugeResponse) head.response_bytes = 0x4000'0000;
  if (lie == Lie::kBadFdOffset) head.fd_offset = head.response_bytes - 2;
  std::vector<std::byte> out;
  append(out, head);
  out.insert(out.end(), answer.response.begin(), answer.response.end());
  if (!answer.patch.empty()) {
    abi::Patch patch{answer.patch_address, static_cast<std::uint32_t>(answer.patch.size()), 0};
    if (lie == Lie::kHugePatch) patch.length = 0x4000'0000;
    append(out, patch);
    out.insert(out.end(), answer.patch.begin(), answer.patch.end());
  }
  return out;
}

}  // namespace

bool FakeDaemon::answer_command(Session& session, const abi::MessageHeader& header,
                                std::span<const std::byte> command) {
  count("commands", 1);
  Lie lie = options_.command_lie;
  {
    const std::lock_guard lock(mutex_);
    if (commands_served_++ < options_.commands_before_lie) lie = Lie::kNone;
  }
  Answer answer;
  answer.response = pattern(response_room(command));
  const auto code = load<std::uint32_t>(command.data());
  if (code == IB_USER_VERBS_CMD_GET_CONTEXT || code == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) {
    int ends[2];
    must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    session.pipes.push_back(ends[0]);
    session.pipes.push_back(ends[1]);
    answer.fd = ends[0];
    answer.channel_handle = 7000 + static_cast<std::uint32_t>(session.pipes.size());
    (void)!write(ends[1], "pipe", 4);
  } else if (code == IB_USER_VERBS_CMD_CREATE_CQ ||
             code == (IB_USER_VERBS_EX_CMD_CREATE_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED)) {
    // Gives the channel back as the CQ's handle, so that the probe sees what arrived.
    const bool is_ex = code != IB_USER_VERBS_CMD_CREATE_CQ;
    const std::size_t at = is_ex ? 24 + offsetof(ib_uverbs_ex_create_cq, comp_channel)
                                 : 8 + offsetof(ib_uverbs_create_cq, comp_channel);
    store(answer.response.data(), load<std::uint32_t>(command.data() + at));
  } else if (code == IB_USER_VERBS_CMD_MODIFY_SRQ) {
    answer.patch_address = load<std::uint64_t>(command.data() + 8 + sizeof(ib_uverbs_modify_srq));
    answer.patch = pattern(16);
  } else if (code == IB_USER_VERBS_CMD_DEALLOC_PD) {
    answer.error = ENXIO;
  } else if (code == IB_USER_VERBS_CMD_REREG_MR &&
             load<std::uint32_t>(command.data() + 8 + offsetof(ib_uverbs_rereg_mr, mr_handle)) ==
                 kRefusedMr) {
    answer.error = ENXIO;
  }
  if (lie == Lie::kWideResponse) answer.response.resize(answer.response.size() + 8);
  if (lie == Lie::kWildPatch) answer.patch_address = reinterpret_cast<std::uint64_t>(&options_);
  if (answer.error != 0) return session.reply(header, answer.error, {});
  std::vector<int> fds;
  if (answer.fd >= 0) fds.push_back(answer.fd);
  if (lie == Lie::kUnaskedFd) fds.push_back(session.context_fd);
  return session.reply(header, 0, encode(answer, command.size(), lie), fds, lie);
}

bool FakeDaemon::answer_sysfs(Session& session, const abi::MessageHeader& header,
                              std::span<const std::byte> payload) {
  const std::string path(reinterpret_cast<const char*>(payload.data()), payload.size());
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "missing") return session.reply(header, ENOENT, {});
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    ++counters_["sysfs_reads"];
    text = std::to_string(counters_[name]) + "\n";
  }
  return session.reply(header, 0, std::as_bytes(std::span(text)));
}

}  // namespace rocemu::test
