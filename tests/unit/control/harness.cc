#include "tests/unit/control/harness.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <future>

#include "control/addresses.h"
#include "control/daemon.h"
#include "dataplane/transport/qp_attr.h"
#include "rocemu/base/bytes.h"

namespace rocemu::control::testing {
namespace {

using transport::QpState;

UniqueFd connect_to(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  // A daemon that does not answer fails the test instead of holding it.
  const timeval patience{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

bool are_all_zero(const nlohmann::json& counts) {
  for (const auto& [name, value] : counts.items()) {
    if (value != 0) return false;
  }
  return true;
}

}  // namespace

TemporaryDir::TemporaryDir() {
  char path[] = "/tmp/rocemu-test-XXXXXX";
  if (::mkdtemp(path) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = path;
}

TemporaryDir::~TemporaryDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

RunningDaemon::RunningDaemon() : stop_(::eventfd(0, EFD_CLOEXEC)) {
  Config config;
  config.runtime_dir = directory_.path();
  config.devices = embedded_default();
  config.max_clients = 8;
  std::promise<void> ready;
  auto is_ready = ready.get_future();
  thread_ = std::thread([this, config, &ready] {
    try {
      Daemon daemon(config);
      daemon.watch_signals(stop_.get());
      ready.set_value();
      daemon.run();
    } catch (...) {
      ready.set_exception(std::current_exception());
    }
  });
  try {
    is_ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

RunningDaemon::~RunningDaemon() {
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

nlohmann::json RunningDaemon::ask(const nlohmann::json& request) const {
  const UniqueFd fd = connect_to(path(abi::kControlName), SOCK_STREAM);
  const std::string line = request.dump() + "\n";
  (void)!::write(fd.get(), line.data(), line.size());
  std::string answer;
  char c = 0;
  while (::read(fd.get(), &c, 1) == 1 && c != '\n') answer += c;
  return nlohmann::json::parse(answer, nullptr, false);
}

nlohmann::json RunningDaemon::objects(std::size_t device) const {
  return ask({{"command", "status"}})["devices"][device]["objects"];
}

bool RunningDaemon::becomes_empty() const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < deadline) {
    bool is_empty = true;
    const auto status = ask({{"command", "status"}});
    for (const auto& device : status["devices"]) is_empty &= are_all_zero(device["objects"]);
    if (is_empty && status["clients"].empty()) return true;
  }
  return false;
}

Client::Client(const RunningDaemon& daemon)
    : fd_(connect_to(daemon.path(abi::kSocketName), SOCK_SEQPACKET)) {
  EXPECT_TRUE(fd_.is_open());
}

void Client::send_raw(std::span<const std::byte> bytes) {
  (void)!::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

Answer Client::receive() {
  std::vector<std::byte> buffer(abi::kMaxMessageBytes);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(abi::kMaxMessageFds * sizeof(int))> control{};
  iovec piece{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  Answer out;
  if (n < static_cast<ssize_t>(sizeof out.header)) return out;
  out.is_there = true;
  out.header = load<abi::MessageHeader>(buffer.data());
  out.payload.assign(buffer.begin() + sizeof out.header, buffer.begin() + n);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      out.fds.emplace_back(fd);
    }
  }
  return out;
}

Answer Client::call(abi::MessageType type, std::span<const std::byte> payload) {
  const abi::MessageHeader header{.magic = abi::kMessageMagic,
                                  .type = type,
                                  .sequence = ++sequence_,
                                  .length = static_cast<std::uint32_t>(payload.size()),
                                  .error = 0,
                                  .reserved = 0};
  std::vector<std::byte> bytes(sizeof header + payload.size());
  store(bytes.data(), header);
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);
  send_raw(bytes);
  Answer answer = receive();
  if (answer.is_there) {
    EXPECT_EQ(answer.header.sequence, sequence_);
  }
  return answer;
}

void Client::hello() {
  const abi::HelloRequest request{abi::kProtocolVersion, 0};
  const Answer answer = call(abi::MessageType::kHello, std::as_bytes(std::span(&request, 1)));
  ASSERT_TRUE(answer.is_there);
  ASSERT_EQ(answer.header.error, 0);
}

void Client::open(std::uint32_t device) {
  hello();
  const abi::OpenDeviceRequest request{device, 0};
  Answer answer = call(abi::MessageType::kOpenDevice, std::as_bytes(std::span(&request, 1)));
  ASSERT_TRUE(answer.is_there);
  ASSERT_EQ(answer.header.error, 0);
  ASSERT_EQ(answer.fds.size(), 3u);
  context_fd = std::move(answer.fds[0]);
  doorbell_fd = std::move(answer.fds[1]);
  wake_fd = std::move(answer.fds[2]);
}

Client::Outcome Client::command(std::span<const std::byte> bytes) {
  Answer answer = call(abi::MessageType::kCommand, bytes);
  Outcome out;
  if (!answer.is_there) return out;
  out.error = answer.header.error;
  if (answer.payload.size() < sizeof(abi::CommandReply)) return out;
  const auto head = load<abi::CommandReply>(answer.payload.data());
  EXPECT_LE(head.response_bytes, answer.payload.size() - sizeof head);
  if (out.error == 0) {
    EXPECT_EQ(head.written, bytes.size());
  }
  out.response.assign(answer.payload.begin() + sizeof head,
                      answer.payload.begin() + sizeof head + head.response_bytes);
  std::span<const std::byte> rest = std::span(answer.payload).subspan(sizeof head);
  rest = rest.subspan(head.response_bytes);
  for (std::uint32_t i = 0; i < head.patch_count; ++i) {
    const auto patch = load<abi::Patch>(rest.data());
    const auto patched = rest.subspan(sizeof patch, patch.length);
    out.patches.push_back({patch.address, {patched.begin(), patched.end()}});
    rest = rest.subspan(sizeof patch + (patch.length + 7) / 8 * 8);
  }
  EXPECT_TRUE(rest.empty());
  out.channel_handle = head.channel_handle;
  if (!answer.fds.empty()) out.fd = std::move(answer.fds[0]);
  return out;
}

std::vector<std::byte> Client::frame_plain(std::uint32_t number, std::span<const std::byte> core,
                                           std::size_t out_bytes) {
  const ib_uverbs_cmd_hdr header{
      number, static_cast<std::uint16_t>((sizeof(ib_uverbs_cmd_hdr) + core.size()) / 4),
      static_cast<std::uint16_t>(out_bytes / 4)};
  std::vector<std::byte> bytes(sizeof header + core.size());
  store(bytes.data(), header);
  std::copy(core.begin(), core.end(), bytes.begin() + sizeof header);
  return bytes;
}

std::vector<std::byte> Client::frame_extended(std::uint32_t number, std::span<const std::byte> core,
                                              std::size_t out_bytes, std::size_t driver_bytes) {
  const ib_uverbs_cmd_hdr header{number | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                                 static_cast<std::uint16_t>(core.size() / 8),
                                 static_cast<std::uint16_t>(out_bytes / 8)};
  const ib_uverbs_ex_cmd_hdr extended{1, 0, static_cast<std::uint16_t>(driver_bytes / 8), 0};
  std::vector<std::byte> bytes(sizeof header + sizeof extended + core.size());
  store(bytes.data(), header);
  store(bytes.data() + sizeof header, extended);
  std::copy(core.begin(), core.end(), bytes.begin() + sizeof header + sizeof extended);
  return bytes;
}

void Client::get_context() {
  Outcome out = plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{},
                      sizeof(ib_uverbs_get_context_resp));
  ASSERT_EQ(out.error, 0);
  ASSERT_TRUE(out.fd.is_open());
  async_fd = std::move(out.fd);
}

std::uint32_t Client::alloc_pd() {
  const Outcome out =
      plain(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, sizeof(ib_uverbs_alloc_pd_resp));
  EXPECT_EQ(out.error, 0);
  return out.as<ib_uverbs_alloc_pd_resp>().pd_handle;
}

ib_uverbs_create_cq_resp Client::create_cq(std::uint32_t cqe, std::int32_t channel,
                                           std::uint64_t cookie) {
  ib_uverbs_create_cq in{};
  in.cqe = cqe;
  in.comp_channel = channel;
  in.user_handle = cookie;
  const Outcome out = plain(IB_USER_VERBS_CMD_CREATE_CQ, in,
                            sizeof(ib_uverbs_create_cq_resp) + sizeof(rxe_create_cq_resp));
  EXPECT_EQ(out.error, 0);
  return out.as<ib_uverbs_create_cq_resp>();
}

ib_uverbs_create_qp_resp Client::create_qp(std::uint32_t pd, std::uint32_t cq) {
  ib_uverbs_create_qp in{};
  in.pd_handle = pd;
  in.send_cq_handle = in.recv_cq_handle = cq;
  in.max_send_wr = in.max_recv_wr = 4;
  in.max_send_sge = in.max_recv_sge = 1;
  in.qp_type = static_cast<std::uint8_t>(transport::QpType::kRc);
  const Outcome out = plain(IB_USER_VERBS_CMD_CREATE_QP, in,
                            sizeof(ib_uverbs_create_qp_resp) + sizeof(rxe_create_qp_resp));
  EXPECT_EQ(out.error, 0);
  return out.as<ib_uverbs_create_qp_resp>();
}

int Client::modify_qp(const ib_uverbs_modify_qp& in) {
  return plain(IB_USER_VERBS_CMD_MODIFY_QP, in, 0).error;
}

int Client::to_init(std::uint32_t qp) {
  ib_uverbs_modify_qp in{};
  in.qp_handle = qp;
  in.qp_state = static_cast<std::uint8_t>(QpState::kInit);
  in.port_num = 1;
  in.attr_mask = transport::kQpState | transport::kQpPkeyIndex | transport::kQpPort |
                 transport::kQpAccessFlags;
  return modify_qp(in);
}

ib_uverbs_modify_qp Client::rtr_request(std::uint32_t qp, std::uint32_t remote_qpn,
                                        const std::string& destination, std::uint8_t gid_index) {
  ib_uverbs_modify_qp in{};
  in.qp_handle = qp;
  in.qp_state = static_cast<std::uint8_t>(QpState::kRtr);
  in.path_mtu = 3;  // 1024
  in.dest_qp_num = remote_qpn;
  in.max_dest_rd_atomic = 1;
  in.min_rnr_timer = 12;
  const wire::Gid gid = parse_address(destination).value();
  std::copy(gid.begin(), gid.end(), std::begin(in.dest.dgid));
  in.dest.is_global = 1;
  in.dest.sgid_index = gid_index;
  in.dest.port_num = 1;
  in.attr_mask = transport::kQpState | transport::kQpAv | transport::kQpPathMtu |
                 transport::kQpDestQpn | transport::kQpRqPsn | transport::kQpMaxDestRdAtomic |
                 transport::kQpMinRnrTimer;
  return in;
}

int Client::to_rtr(std::uint32_t qp, std::uint32_t remote_qpn, const std::string& destination,
                   std::uint8_t gid_index) {
  return modify_qp(rtr_request(qp, remote_qpn, destination, gid_index));
}

}  // namespace rocemu::control::testing
