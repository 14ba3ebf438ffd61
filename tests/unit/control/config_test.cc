// Configuration: what is accepted, and that what is not says where, which key, and what is allowed.
#include "control/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "control/addresses.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  Config config;
  const auto done = parse_config_text(text, "r.conf", config);
  return done ? "" : done.error().text;
}

ParsedCommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "rocemud");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(Config, AFileMakesDevicesInOrder) {
  Config config;
  ASSERT_TRUE(parse_config_text("log-level = debug  # a comment\n"
                                "\n"
                                "[left]\n"
                                "link = wire:w\n"
                                "ip = 10.0.0.1, fd00::1\n"
                                "ip = 10.0.0.9/24\n"
                                "mac = 02:00:00:00:00:01\n"
                                "mtu = 1500\n"
                                "neighbour = 10.0.0.2 02:00:00:00:00:02\n"
                                "[right]\n"
                                "link = memif:/run/m.sock,role=client\n",
                                "r.conf", config)
                  .ok());
  EXPECT_EQ(config.log_level, "debug");
  ASSERT_EQ(config.devices.size(), 2u);
  EXPECT_EQ(config.devices[0].name, "left");
  EXPECT_EQ(config.devices[0].addresses.size(), 3u);
  EXPECT_EQ(config.devices[0].mtu_bytes, 1500u);
  EXPECT_EQ(config.devices[0].neighbours.size(), 1u);
  EXPECT_EQ(config.devices[1].link.kind, LinkConfig::Kind::kEthdev);
}

TEST(Config, ANetdevKeepsThePrefixLengthsAndIsPrintedAsItWasRead) {
  Config config;
  const std::string text =
      "[a]\nip = 10.0.0.1/30, 10.0.1.1, fd00::1\nnetdev = n0\nnetns = /proc/1/ns/net\n";
  ASSERT_TRUE(parse_config_text(text, "r.conf", config).ok());
  EXPECT_EQ(config.devices[0].netdev, "n0");
  EXPECT_EQ(config.devices[0].netns, "/proc/1/ns/net");
  for (const char* line : {"ip = 10.0.0.1/30\n", "ip = 10.0.1.1/24\n", "ip = fd00::1/64\n",
                           "netdev = n0\n", "netns = /proc/1/ns/net\n"}) {
    EXPECT_THAT(effective_text(config), HasSubstr(line));
  }
  EXPECT_THAT(error_of("[a]\nnetdev = a-name-that-is-too-long\n"),
              AllOf(HasSubstr("r.conf:2"), HasSubstr("15 characters")));
  for (const char* name : {"a/b", "a:1", "..", "a b", "n%d"}) {
    EXPECT_THAT(error_of("[a]\nnetdev = " + std::string(name) + "\n"), HasSubstr("netdev"));
  }
  EXPECT_THAT(error_of("[a]\nnetns = left\n"), HasSubstr("netns is for a netdev"));
  EXPECT_THAT(error_of("[a]\nnetdev = n0\nvlan = 5\n"), HasSubstr("VLAN interface"));
  EXPECT_THAT(error_of("[a]\nip = 10.0.0.1/33\n"), HasSubstr("r.conf:2"));
}

TEST(Config, ErrorsNameFileLineKeyAndWhatIsAllowed) {
  EXPECT_THAT(error_of("[a]\nmtu = 12\n"),
              AllOf(HasSubstr("r.conf:2"), HasSubstr("mtu"), HasSubstr("1280 ... 9000")));
  EXPECT_THAT(error_of("[a]\nlink = pigeon:1\n"),
              AllOf(HasSubstr("r.conf:2"), HasSubstr("link"), HasSubstr("memif:")));
  EXPECT_THAT(error_of("[a]\nspeed = 1\n"),
              AllOf(HasSubstr("r.conf:2"), HasSubstr("speed"), HasSubstr("mtu")));
  EXPECT_THAT(error_of("spin-us = many\n[a]\n"),
              AllOf(HasSubstr("r.conf:1"), HasSubstr("spin-us"), HasSubstr("1000000")));
  EXPECT_THAT(error_of("[a]\nneighbour = 10.0.0.1\n"),
              AllOf(HasSubstr("neighbour"), HasSubstr("IP MAC")));
  EXPECT_THAT(error_of("[a]\n[a]\n"), AllOf(HasSubstr("r.conf:2"), HasSubstr("twice")));
  EXPECT_THAT(error_of("[a b]\n"), HasSubstr("r.conf:1"));
  EXPECT_THAT(error_of("hello\n"), HasSubstr("KEY = VALUE"));
  EXPECT_THAT(error_of(""), HasSubstr("no device"));
  EXPECT_THAT(error_of("[a]\nip = 10.0.0.1\n[b]\nip = 10.0.0.2, 10.0.0.1\n"),
              AllOf(HasSubstr("'a' and 'b'"), HasSubstr("wire:wire0"), HasSubstr("10.0.0.1")));
  // Other wires are other links: nobody meets.
  EXPECT_EQ(error_of("[a]\nip = 10.0.0.1\n[b]\nlink = wire:other\nip = 10.0.0.1\n"), "");
}

TEST(Config, EveryGlobalKeyRefusesNonsense) {
  for (const char* key : {"personality", "icrc", "log-level", "worker-cpu", "spin-us",
                          "max-poll-us", "max-clients"}) {
    EXPECT_THAT(error_of(std::string(key) + " = nonsense\n[a]\n"), HasSubstr(key));
  }
}

TEST(Config, WithoutAFileThereAreTwoDevicesOnAWire) {
  const auto parsed = parse({"--runtime-dir", "/tmp/x"});
  ASSERT_TRUE(parsed.config);
  ASSERT_EQ(parsed.config->devices.size(), 2u);
  EXPECT_EQ(parsed.config->devices[1].name, "roce1");
  EXPECT_EQ(address_text(parsed.config->devices[1].addresses[0]), "10.100.0.2");
  EXPECT_EQ(parsed.config->runtime_dir, "/tmp/x");
}

TEST(Config, AFolderOrNothingIsNoConfigurationFile) {
  for (const char* path : {"/", "/nothing/is/here"}) {
    const ParsedCommandLine parsed = parse({"--config", path});
    EXPECT_FALSE(parsed.config);
    EXPECT_THAT(parsed.text, AllOf(HasSubstr(path), HasSubstr("cannot be read")));
  }
}

TEST(Config, TheCommandLineOverridesTheFile) {
  const TemporaryDir directory;
  const std::string path = directory.path() + "/r.conf";
  std::ofstream(path) << "log-level = error\n[a]\n";
  const auto parsed = parse({"--config", path.c_str(), "--log-level", "trace"});
  ASSERT_TRUE(parsed.config);
  EXPECT_EQ(parsed.config->log_level, "trace");
}

TEST(Config, HelpExplainsEveryKeyAndErrorsLeaveWithTwo) {
  const auto help = parse({"--help"});
  EXPECT_FALSE(help.config);
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"personality", "max-clients", "neighbour", "link", "ready-fd"}) {
    EXPECT_THAT(help.text, HasSubstr(word));
  }
  for (const auto& words : std::vector<std::vector<const char*>>{
           {"--what"}, {"--spin-us", "-3"}, {"--config", "/nonexistent"}, {"--log-level"}}) {
    const auto parsed = parse(words);
    EXPECT_FALSE(parsed.config);
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.text, HasSubstr("rocemud: "));
  }
}

TEST(Config, TheEffectiveTextParsesToItself) {
  Config config;
  config.devices = embedded_default();
  const std::string text = effective_text(config);
  Config again;
  ASSERT_TRUE(parse_config_text(text, "x", again).ok());
  EXPECT_EQ(effective_text(again), text);
}

TEST(Config, LinksOfEachKind) {
  EXPECT_EQ(parse_link("wire:w", "d").value().kind, LinkConfig::Kind::kWire);
  EXPECT_EQ(parse_link("memif:/m,role=server", "d").value().server_socket, "/m");
  EXPECT_EQ(parse_link("memif:/m,role=client", "d").value().server_socket, "");
  EXPECT_THAT(parse_link("af_packet:eth9", "d").value().devargs, HasSubstr("iface=eth9"));
  EXPECT_EQ(parse_link("vdev:net_tap0,iface=t", "d").value().name, "net_tap0");
  EXPECT_FALSE(parse_link("pci:0000:01:00.0", "d").value().is_vdev);
  for (const char* text : {"", "wire", "wire:", ":x", "tap:x"}) {
    EXPECT_FALSE(parse_link(text, "d").ok()) << text;
  }
}

}  // namespace
}  // namespace rocemu::control::testing
