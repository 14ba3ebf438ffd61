// The sockets: messages that are wrong, clients that go, limits, and the tool's requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "control/daemon.h"
#include "control/session.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

abi::MessageHeader header_of(abi::MessageType type, std::uint32_t length) {
  return {abi::kMessageMagic, type, 1, length, 0, 0};
}

std::vector<std::byte> message(const abi::MessageHeader& header, std::size_t payload_bytes) {
  std::vector<std::byte> bytes(sizeof header + payload_bytes);
  store(bytes.data(), header);
  return bytes;
}

void expect_still_serving(const RunningDaemon& daemon) {
  Client client(daemon);
  client.open(0);
  client.get_context();
}

// One daemon serves all tests: making one takes a while under the sanitizers.
class Served : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { running_ = std::make_unique<RunningDaemon>(); }
  static void TearDownTestSuite() { running_.reset(); }
  void SetUp() override { ASSERT_TRUE(daemon.becomes_empty()); }

  static inline std::unique_ptr<RunningDaemon> running_;
  const RunningDaemon& daemon = *running_;
};
class Session : public Served {};
class Tool : public Served {};

TEST_F(Session, WrongMessagesEndTheirConnectionOnly) {
  auto bad_magic = header_of(abi::MessageType::kHello, sizeof(abi::HelloRequest));
  bad_magic.magic = 7;
  const std::vector<std::vector<std::byte>> wrong = {
      std::vector<std::byte>(1),
      std::vector<std::byte>(sizeof(abi::MessageHeader) - 1),
      message(bad_magic, sizeof(abi::HelloRequest)),
      message(header_of(abi::MessageType::kHello, 0), 0),
      message(header_of(abi::MessageType::kHello, 8), 0),
      message(header_of(abi::MessageType::kHello, ~0u), sizeof(abi::HelloRequest)),
      message(header_of(abi::MessageType::kHello, 0), sizeof(abi::HelloRequest)),
      message(header_of(abi::MessageType::kOpenDevice, 8), 8),  // before the greeting
      message(header_of(abi::MessageType::kCommand, 8), 8),
      message(header_of(static_cast<abi::MessageType>(99), 0), 0),
      message(header_of(abi::MessageType::kHello, abi::kMaxMessageBytes), abi::kMaxMessageBytes),
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    Client client(daemon);
    client.send_raw(wrong[i]);
    EXPECT_FALSE(client.receive().is_there) << i;
  }
  expect_still_serving(daemon);
}

TEST_F(Session, WrongMessagesAfterTheGreetingEndItToo) {
  for (const auto& bytes : {message(header_of(abi::MessageType::kCommand, 8), 8),
                            message(header_of(abi::MessageType::kOpenDevice, 4), 4),
                            message(header_of(static_cast<abi::MessageType>(0), 0), 0)}) {
    Client client(daemon);
    client.hello();
    client.send_raw(bytes);
    EXPECT_FALSE(client.receive().is_there);
  }
  expect_still_serving(daemon);
}

TEST_F(Session, AnotherProtocolIsRefusedWithOurs) {
  Client client(daemon);
  const abi::HelloRequest request{abi::kProtocolVersion + 1, 0};
  const Answer answer =
      client.call(abi::MessageType::kHello, std::as_bytes(std::span(&request, 1)));
  ASSERT_TRUE(answer.is_there);
  EXPECT_EQ(answer.header.error, EPROTO);
  EXPECT_EQ(load<abi::HelloReply>(answer.payload.data()).protocol_version, abi::kProtocolVersion);
}

TEST_F(Session, DescriptorsThatAClientSendsAreNotKept) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  Client client(daemon);
  auto bytes = message(header_of(abi::MessageType::kHello, sizeof(abi::HelloRequest)),
                       sizeof(abi::HelloRequest));
  store(bytes.data() + sizeof(abi::MessageHeader), abi::kProtocolVersion);
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &piece;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&m);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int sent = writer.get();
  std::memcpy(CMSG_DATA(rights), &sent, sizeof sent);
  ASSERT_GT(::sendmsg(client.fd(), &m, 0), 0);
  EXPECT_TRUE(client.receive().is_there);
  writer.reset();
  char c = 0;
  EXPECT_EQ(::read(reader.get(), &c, 1), 0) << "the daemon holds the other end";
}

TEST_F(Session, ContextsHaveALimit) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(daemon));
    clients.back()->open(0);
  }
  Client one_more(daemon);
  one_more.hello();
  const abi::OpenDeviceRequest request{0, 0};
  const auto open = [&] {
    return one_more.call(abi::MessageType::kOpenDevice, std::as_bytes(std::span(&request, 1)));
  };
  EXPECT_EQ(open().header.error, EMFILE);
  clients.clear();
  EXPECT_TRUE(daemon.becomes_empty());
  EXPECT_EQ(open().header.error, 0);
}

TEST(SessionLoad, NobodyButTheOwnerTakesMoreThanHalf) {
  EXPECT_TRUE(may_connect({.all = 0, .of_this_user = 0, .limit = 10}, false));
  EXPECT_TRUE(may_connect({.all = 9, .of_this_user = 4, .limit = 10}, false));
  EXPECT_FALSE(may_connect({.all = 5, .of_this_user = 5, .limit = 10}, false));
  EXPECT_TRUE(may_connect({.all = 9, .of_this_user = 9, .limit = 10}, true));
  EXPECT_FALSE(may_connect({.all = 10, .of_this_user = 0, .limit = 10}, true));
  EXPECT_FALSE(may_connect({.all = 10, .of_this_user = 0, .limit = 10}, false));
}

TEST_F(Session, ADeviceThatIsNotThereIsRefused) {
  Client client(daemon);
  client.hello();
  for (const std::uint32_t index : {2u, ~0u}) {
    const abi::OpenDeviceRequest request{index, 0};
    const Answer answer =
        client.call(abi::MessageType::kOpenDevice, std::as_bytes(std::span(&request, 1)));
    ASSERT_TRUE(answer.is_there);
    EXPECT_EQ(answer.header.error, ENODEV);
  }
}

TEST_F(Session, AProcessThatIsKilledLeavesNothingThoughItsSocketLivesOn) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  Client client(daemon);  // its socket is ours as well as the child's ...
  client.hello();
  const pid_t child = ::fork();
  if (child == 0) {
    Client own(daemon);  // ... this one is the child's alone
    own.open(0);
    (void)own.alloc_pd();
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_EQ(daemon.objects(0)["pds"], 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(daemon.becomes_empty());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Session, CountersAreReadLiveAndNothingElseIs) {
  Client client(daemon);
  client.hello();
  const auto read = [&](const std::string& attribute) {
    return client.call(abi::MessageType::kReadSysfs, std::as_bytes(std::span(attribute)));
  };
  const Answer answer = read("class/infiniband/roce0/ports/1/counters/port_rcv_packets");
  EXPECT_EQ(answer.header.error, 0);
  ASSERT_EQ(answer.payload.size(), 2u);
  EXPECT_EQ(answer.payload[0], std::byte{'0'});
  EXPECT_EQ(read("class/infiniband/roce9/ports/1/counters/port_rcv_packets").header.error, ENOENT);
  EXPECT_EQ(read("../rocemud.pid").header.error, ENOENT);
  EXPECT_EQ(read("").header.error, ENOENT);
}

TEST_F(Session, ExecNoticesOfAProcessWithoutContextsAreAnswered) {
  Client client(daemon);
  client.hello();
  EXPECT_EQ(client.call(abi::MessageType::kExecNotice, {}).header.error, 0);
  EXPECT_EQ(client.call(abi::MessageType::kExecFailed, {}).header.error, 0);
}

TEST_F(Session, AfterAnExecNoticeMemoryIsOutOfReachUntilItFailed) {
  Client context(daemon);
  context.open(0);
  context.get_context();
  Client process(daemon);
  process.hello();
  static char memory[4096];
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  const std::uint32_t pd = context.alloc_pd();
  const auto reg = [&] {
    const ib_uverbs_reg_mr in{0, at, sizeof memory, at, pd, 0};
    return context.plain(IB_USER_VERBS_CMD_REG_MR, in, sizeof(ib_uverbs_reg_mr_resp)).error;
  };
  EXPECT_EQ(process.call(abi::MessageType::kExecNotice, {}).header.error, 0);
  EXPECT_EQ(reg(), EFAULT);
  EXPECT_EQ(process.call(abi::MessageType::kExecFailed, {}).header.error, 0);
  EXPECT_EQ(reg(), 0);
}

TEST_F(Tool, AnswersAndRefuses) {
  const auto status = daemon.ask({{"command", "status"}});
  EXPECT_EQ(status["ok"], true);
  EXPECT_EQ(status["devices"].size(), 2u);
  EXPECT_EQ(status["devices"][0]["state"], "ACTIVE");
  EXPECT_EQ(daemon.ask({{"command", "qps"}, {"device", "roce0"}})["qps"].size(), 0u);
  EXPECT_EQ(daemon.ask({{"command", "config"}})["ok"], true);
  for (const nlohmann::json& request :
       {nlohmann::json{{"command", "fly"}}, nlohmann::json{{"command", 5}}, nlohmann::json::array(),
        nlohmann::json(), nlohmann::json{{"x", 1}},
        nlohmann::json{{"command", "qps"}, {"device", "none"}},
        nlohmann::json{{"command", "link"}, {"device", "roce0"}, {"state", "sideways"}},
        nlohmann::json{{"command", "capture"}, {"device", "none"}, {"action", "stop"}},
        nlohmann::json{{"command", "capture"}, {"device", "roce0"}, {"action", "stop"}},
        nlohmann::json{{"command", "capture"}, {"device", "roce0"}, {"action", "fly"}},
        nlohmann::json{{"command", "capture"}, {"device", "roce0"}, {"action", "start"}},
        nlohmann::json{
            {"command", "capture"}, {"device", "roce0"}, {"action", "start"}, {"file", "/"}},
        nlohmann::json{{"command", "capture"},
                       {"device", "roce0"},
                       {"action", "start"},
                       {"file", "/dev/null"}}}) {
    const auto answer = daemon.ask(request);
    EXPECT_EQ(answer["ok"], false) << request.dump();
    EXPECT_FALSE(answer["error"].get<std::string>().empty());
  }
}

TEST_F(Tool, ALinkThatGoesDownIsSeenByApplications) {
  Client client(daemon);
  client.open(0);
  client.get_context();
  EXPECT_EQ(daemon.ask({{"command", "link"}, {"device", "roce0"}, {"state", "down"}})["ok"], true);
  std::array<std::byte, 16> event{};
  ASSERT_EQ(::read(client.async_fd.get(), event.data(), event.size()), 16);
  EXPECT_EQ(load<std::uint64_t>(event.data()), 1u);       // the port
  EXPECT_EQ(load<std::uint32_t>(event.data() + 8), 10u);  // IBV_EVENT_PORT_ERR
  EXPECT_EQ(daemon.ask({{"command", "status"}})["devices"][0]["state"], "DOWN");
  EXPECT_EQ(daemon.ask({{"command", "link"}, {"device", "roce0"}, {"state", "up"}})["ok"], true);
  ASSERT_EQ(::read(client.async_fd.get(), event.data(), event.size()), 16);
  EXPECT_EQ(load<std::uint32_t>(event.data() + 8), 9u);  // IBV_EVENT_PORT_ACTIVE
}

std::string failure_of(const Config& config) {
  try {
    const Daemon daemon(config);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(DaemonStart, TwoDoNotShareADirectoryAndNothingIsLeftBehind) {
  const TemporaryDir parent;
  Config config;
  config.runtime_dir = parent.path() + "/run";
  config.devices = embedded_default();
  {
    const Daemon first(config);
    EXPECT_THAT(failure_of(config), HasSubstr("another rocemud serves " + config.runtime_dir));
    EXPECT_TRUE(std::filesystem::exists(config.runtime_dir + "/" + abi::kSocketName));
  }
  for (const char* name :
       {abi::kSocketName, abi::kControlName, abi::kPidName, abi::kCountersName, abi::kSysfsName}) {
    EXPECT_FALSE(std::filesystem::exists(config.runtime_dir + "/" + name)) << name;
  }
}

TEST(DaemonStart, ADirectoryThatCannotBeMadeIsAClearError) {
  Config config;
  config.runtime_dir = "/proc/rocemu";
  config.devices = embedded_default();
  EXPECT_THAT(failure_of(config), AllOf(HasSubstr("/proc/rocemu"), HasSubstr("--runtime-dir")));
}

TEST(DaemonStart, ADeviceOnAMissingPortIsAClearError) {
  const TemporaryDir directory;
  Config config;
  config.runtime_dir = directory.path();
  config.devices = embedded_default();
  config.devices.resize(1);
  config.devices[0].link.kind = LinkConfig::Kind::kEthdev;
  config.devices[0].link.name = config.devices[0].link.devargs = "no_such_driver0";
  EXPECT_THAT(failure_of(config), HasSubstr("roce0"));
}

}  // namespace
}  // namespace rocemu::control::testing
