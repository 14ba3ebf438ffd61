// GID table under changing addresses, neighbours over time, and what an address vector becomes on
// the wire.
#include "control/addresses.h"

#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <array>
#include <cstring>

#include "control/neighbours.h"
#include "control/path.h"
#include "control/rtnetlink.h"
#include "dataplane/dpdk/wire_port.h"
#include "dataplane/memory/plain_port.h"
#include "dataplane/wire/neighbour.h"

namespace rocemu::control::testing {
namespace {

using namespace std::chrono_literals;

constexpr wire::MacAddress kMac = {0x02, 0x00, 0x52, 0x6f, 0x00, 0x01};
constexpr wire::MacAddress kPeerMac = {0x02, 0x00, 0x52, 0x6f, 0x00, 0x02};

wire::Gid gid(const std::string& text) { return parse_address(text).value(); }
DeviceAddress on(const std::string& netdev, const std::string& address,
                 std::optional<std::uint16_t> vlan = {}) {
  return {gid(address), vlan, netdev};
}
using Indices = std::vector<std::size_t>;

TEST(GidTable, WhatStaysKeepsItsIndexAndHolesAreFilledFirst) {
  const DeviceAddress base = on("n", "::");
  std::vector<GidEntry> table;
  const auto update = [&](const std::vector<DeviceAddress>& addresses) {
    return update_gid_table(table, 16, with_link_local(kMac, base, addresses));
  };
  EXPECT_EQ(update({on("n", "10.0.0.1"), on("n", "fd00::1")}), (Indices{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(update({on("n", "10.0.0.1"), on("n", "fd00::1")}), Indices{});
  // Removed: a hole, the one behind it stays.
  EXPECT_EQ(update({on("n", "fd00::1")}), (Indices{2, 3}));
  EXPECT_TRUE(table[2].is_empty());
  EXPECT_EQ(table[5].gid, gid("fd00::1"));
  // New ones: the hole, then the end.
  EXPECT_EQ(update({on("n", "fd00::1"), on("n", "10.0.0.2"), on("n", "10.0.0.3")}),
            (Indices{2, 3, 6, 7}));
  EXPECT_EQ(table[3].gid, gid("10.0.0.2"));
  EXPECT_EQ(table[3].type, GidType::kRoceV2);
  EXPECT_EQ(table[6].type, GidType::kRoceV1);
}

TEST(GidTable, TheKernelsOwnLinkLocalIsNotThereTwice) {
  std::vector<GidEntry> table;
  const std::string own = address_text(link_local(kMac));
  (void)update_gid_table(table, 16, with_link_local(kMac, on("n", "::"), {on("n", own)}));
  EXPECT_EQ(table.size(), 2u);
}

TEST(GidTable, AVlansAddressIsAnEntryOfItsOwn) {
  std::vector<GidEntry> table;
  (void)update_gid_table(table, 16, {on("n", "10.0.0.1"), on("n.5", "10.0.0.1", 5)});
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[3].vlan_id, 5);
  EXPECT_EQ(table[3].netdev, "n.5");
  EXPECT_FALSE(table[1].vlan_id);
}

TEST(GidTable, AFullTableTakesNoMore) {
  std::vector<GidEntry> table;
  std::vector<DeviceAddress> many;
  for (int i = 1; i < 20; ++i) many.push_back(on("n", "10.0.0." + std::to_string(i)));
  EXPECT_EQ(update_gid_table(table, 5, many).size(), 5u);
  EXPECT_EQ(table.size(), 5u);
  EXPECT_EQ(update_gid_table(table, 5, many).size(), 0u);
}

TEST(Addresses, PrefixLengths) {
  EXPECT_EQ(parse_prefix_length("10.0.0.1").value(), 24);
  EXPECT_EQ(parse_prefix_length("fd00::1").value(), 64);
  EXPECT_EQ(parse_prefix_length("10.0.0.1/8").value(), 8);
  EXPECT_EQ(parse_prefix_length("fd00::1/128").value(), 128);
  for (const char* text : {"10.0.0.1/33", "fd00::1/129", "10.0.0.1/", "10.0.0.1/x", "x/8"}) {
    EXPECT_FALSE(parse_prefix_length(text).ok()) << text;
  }
}

TEST(Addresses, GroupAddresses) {
  EXPECT_EQ(mac_text(multicast_mac(gid("239.129.2.3"))), "01:00:5e:01:02:03");
  EXPECT_EQ(mac_text(multicast_mac(gid("ff0e::1:2:304"))), "33:33:00:02:03:04");
}

/// An RTM_NEWLINK message put together as the kernel does.
class LinkMessage {
 public:
  LinkMessage(int index, unsigned flags) {
    ifinfomsg info{};
    info.ifi_index = index;
    info.ifi_flags = flags;
    append(&info, sizeof info);
  }
  std::size_t begin(std::uint16_t type) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof(rtattr));
    rtattr head{};
    head.rta_type = type;
    std::memcpy(bytes.data() + at, &head, sizeof head);
    return at;
  }
  void end(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(bytes.size() - at);
    std::memcpy(bytes.data() + at + offsetof(rtattr, rta_len), &length, sizeof length);
    bytes.resize((bytes.size() + 3) & ~std::size_t{3});
  }
  template <typename T>
  void add(std::uint16_t type, const T& value) {
    const std::size_t at = begin(type);
    append(&value, sizeof value);
    end(at);
  }
  void append(const void* data, std::size_t n) {
    const auto* from = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), from, from + n);
  }
  std::vector<std::byte> bytes;
};

TEST(Rtnetlink, AVlanInterfaceIsKnownByItsKind) {
  LinkMessage message(7, IFF_UP);
  message.add(IFLA_IFNAME, std::to_array("n0.5"));
  message.add(IFLA_LINK, int{3});
  const std::size_t info = message.begin(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::to_array("vlan"));
  const std::size_t data = message.begin(IFLA_INFO_DATA);
  message.add(IFLA_VLAN_ID, std::uint16_t{5});
  message.end(data);
  message.end(info);
  const auto found = parse_interface(message.bytes);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, 7);
  EXPECT_EQ(found->name, "n0.5");
  EXPECT_EQ(found->lower, 3);
  EXPECT_EQ(found->vlan_id, 5);
  EXPECT_TRUE(found->is_up);
  // On an interface of another namespace, whose numbers mean nothing here.
  message.add(IFLA_LINK_NETNSID, int{1});
  EXPECT_EQ(parse_interface(message.bytes)->lower, 0);
  for (std::size_t cut = 0; cut < message.bytes.size(); ++cut) {
    (void)parse_interface(std::span(message.bytes).first(cut));
  }
  EXPECT_FALSE(parse_interface(std::span(message.bytes).first(4)));
}

TEST(Rtnetlink, AnotherKindOnTheInterfaceIsNoVlan) {
  LinkMessage message(7, 0);
  message.add(IFLA_LINK, int{3});
  const std::size_t info = message.begin(IFLA_LINKINFO);
  message.add(IFLA_INFO_KIND, std::to_array("macvlan"));
  const std::size_t data = message.begin(IFLA_INFO_DATA);
  message.add(IFLA_VLAN_ID, std::uint16_t{5});
  message.end(data);
  message.end(info);
  EXPECT_FALSE(parse_interface(message.bytes)->vlan_id);
  EXPECT_FALSE(parse_interface(message.bytes)->is_up);
}

TEST(Neighbours, AreAskedAgainWhenOldAndForgottenWhenDead) {
  Neighbours table({});
  const Neighbours::Time begin{};
  EXPECT_TRUE(table.find(gid("10.0.0.2"), begin).is_to_be_asked);
  table.learn(gid("10.0.0.2"), kPeerMac, begin);
  EXPECT_EQ(table.find(gid("10.0.0.2"), begin + 29s).mac, kPeerMac);
  EXPECT_FALSE(table.find(gid("10.0.0.2"), begin + 29s).is_to_be_asked);
  EXPECT_EQ(table.find(gid("10.0.0.2"), begin + 31s).mac, kPeerMac);
  EXPECT_TRUE(table.find(gid("10.0.0.2"), begin + 31s).is_to_be_asked);
  table.learn(gid("10.0.0.2"), kMac, begin + 32s);  // it moved
  EXPECT_EQ(table.find(gid("10.0.0.2"), begin + 40s).mac, kMac);
  EXPECT_FALSE(table.find(gid("10.0.0.2"), begin + 40s).is_to_be_asked);
  EXPECT_FALSE(table.find(gid("10.0.0.2"), begin + 332s).mac);
  EXPECT_FALSE(table.knows(gid("10.0.0.2")));
}

TEST(Neighbours, ConfiguredOnesStayAndAFullTableGivesUpItsOldest) {
  Neighbours table({{gid("10.0.0.2"), kPeerMac}});
  const Neighbours::Time begin{};
  table.learn(gid("10.0.0.2"), kMac, begin);
  EXPECT_EQ(table.find(gid("10.0.0.2"), begin + 1000h).mac, kPeerMac);
  for (std::size_t i = 0; i < Neighbours::kMaxEntries + 10; ++i) {
    wire::Gid address = gid("fd00::");
    address[14] = static_cast<std::uint8_t>(i >> 8);
    address[15] = static_cast<std::uint8_t>(i);
    table.learn(address, kMac, begin + std::chrono::milliseconds(i));
  }
  EXPECT_EQ(table.size(), Neighbours::kMaxEntries);
  EXPECT_TRUE(table.knows(gid("10.0.0.2")));
  EXPECT_FALSE(table.knows(gid("fd00::3")));
  EXPECT_TRUE(table.knows(gid("fd00::1000")));
}

/// A device on a wire whose other end the test reads.
class Path : public ::testing::Test {
 protected:
  Path() : peer_(wire_.attach(kPeerMac)) {
    DeviceConfig config;
    config.name = "roce0";
    config.neighbours[gid("10.0.0.2")] = kPeerMac;
    config.neighbours[gid("fd00::2")] = kPeerMac;
    device_ = std::make_unique<Device>(config, loop_, worker_);
    const std::size_t index =
        worker_.add_device(std::make_unique<dpdk::WirePort>(wire_.attach(kMac)), {}, memory_,
                           device_->regions, counters_, Prng(1));
    device_->attach(index);
    (void)device_->set_addresses(
        {on("n", "10.0.0.1"), on("n", "fd00::1"), on("n.7", "10.0.7.1", 7)});
  }

  transport::AddressVector vector(std::uint8_t sgid_index, const std::string& destination) {
    transport::AddressVector out;
    out.verbs.sgid_index = sgid_index;
    out.verbs.dgid = gid(destination);
    return out;
  }
  PathOutcome resolve(transport::AddressVector& path) {
    return resolve_path(*device_, {QpNum{5}, QpNum{7}}, path, awaited_);
  }
  std::vector<std::byte> next_frame() {
    std::array<engine::RxFrame, 1> burst;
    if (peer_.receive(burst) == 0) return {};
    std::vector<std::byte> bytes(burst[0].bytes().begin(), burst[0].bytes().end());
    peer_.release(burst);
    return bytes;
  }

  fabric::Wire wire_;
  fabric::Attachment& peer_;
  EventLoop loop_;
  memory::PlainPort memory_;
  CounterBlock counters_;
  WorkerBlock stats_;
  dpdk::Worker worker_{{.max_contexts = 8}, stats_};
  std::unique_ptr<Device> device_;
  wire::Gid awaited_{};
};

TEST_F(Path, EachGidTypeHasItsKindOfFrame) {
  const struct {
    std::uint8_t index;
    const char* destination;
    const char* source;
    wire::RoceKind kind;
  } rows[] = {
      {2, "10.0.0.2", "10.0.0.1", wire::RoceKind::kV1},
      {3, "10.0.0.2", "10.0.0.1", wire::RoceKind::kV2Ipv4},
      {4, "fd00::2", "fd00::1", wire::RoceKind::kV1},
      {5, "fd00::2", "fd00::1", wire::RoceKind::kV2Ipv6},
  };
  for (const auto& row : rows) {
    auto path = vector(row.index, row.destination);
    ASSERT_EQ(resolve(path), PathOutcome::kFound);
    EXPECT_EQ(path.headers.kind, row.kind);
    EXPECT_EQ(path.headers.source, gid(row.source));
    EXPECT_EQ(path.headers.destination, gid(row.destination));
    EXPECT_EQ(path.headers.destination_mac, kPeerMac);
    EXPECT_EQ(path.headers.source_mac, kMac);
    EXPECT_FALSE(path.headers.has_vlan);
  }
}

TEST_F(Path, HopLimitTrafficClassAndFlowLabelAreThoseOfTheVector) {
  auto path = vector(5, "fd00::2");
  path.verbs.hop_limit = 3;
  path.verbs.traffic_class = 0x6a;  // DSCP 26, ECT(0)
  path.verbs.flow_label = 0x54321;
  ASSERT_EQ(resolve(path), PathOutcome::kFound);
  EXPECT_EQ(path.headers.hop_limit, 64);  // the route's
  EXPECT_EQ(path.verbs.hop_limit, 64);
  EXPECT_EQ(path.headers.traffic_class, 0x6a);
  EXPECT_EQ(path.headers.flow_label, 0x54321u);
  EXPECT_EQ(path.headers.udp_source_port, (0x0321 ^ 0x54321 >> 14) | 0x4000 | 0xc000);
  path = vector(3, "10.0.0.2");
  ASSERT_EQ(resolve(path), PathOutcome::kFound);
  EXPECT_EQ(path.headers.hop_limit, 64);
  EXPECT_EQ(path.headers.udp_source_port, 0xc000 | 35);  // 5 * 7
}

TEST_F(Path, TheServiceLevelIsThePriorityOnAVlan) {
  auto path = vector(7, "10.0.7.1");  // itself: no neighbour is needed
  path.verbs.sl = 5;
  ASSERT_EQ(resolve(path), PathOutcome::kFound);
  EXPECT_TRUE(path.headers.has_vlan);
  EXPECT_EQ(path.headers.vlan_tci, 5 << 13 | 7);
}

TEST_F(Path, AnUnknownNeighbourIsAskedForWithTheTagOfTheSource) {
  auto path = vector(7, "10.0.7.2");
  ASSERT_EQ(resolve(path), PathOutcome::kNeighbourAsked);
  EXPECT_EQ(awaited_, gid("10.0.7.2"));
  const auto frame = next_frame();
  ASSERT_GE(frame.size(), 18u);
  EXPECT_EQ(frame[12], std::byte{0x81});
  EXPECT_EQ(frame[15], std::byte{7});
  const auto asked = wire::parse_neighbour(frame);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->target, gid("10.0.7.2"));
  EXPECT_EQ(asked->sender, gid("10.0.7.1"));
  const auto answer = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kReply,
                                                  .sender_mac = kPeerMac,
                                                  .sender = gid("10.0.7.2"),
                                                  .target_mac = kMac,
                                                  .target = gid("10.0.7.1")},
                                                 std::uint16_t{7});
  EXPECT_EQ(device_->on_neighbour_frame(answer), gid("10.0.7.2"));
  EXPECT_EQ(resolve(path), PathOutcome::kFound);
}

TEST_F(Path, WhoAsksUsIsAnsweredAndRemembered) {
  const auto question = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kRequest,
                                                    .sender_mac = kPeerMac,
                                                    .sender = gid("fd00::9"),
                                                    .target_mac = {},
                                                    .target = gid("fd00::1")},
                                                   std::nullopt);
  EXPECT_EQ(device_->on_neighbour_frame(question), gid("fd00::9"));
  const auto answer = wire::parse_neighbour(next_frame());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, wire::NeighbourKind::kReply);
  EXPECT_EQ(answer->sender_mac, kMac);
  auto path = vector(5, "fd00::9");
  EXPECT_EQ(resolve(path), PathOutcome::kFound);
}

TEST_F(Path, RoceV1BetweenLinkLocalGidsNeedsNoNeighbour) {
  auto path = vector(0, address_text(link_local({2, 0, 0, 1, 2, 3})));
  path.verbs.hop_limit = 9;
  ASSERT_EQ(resolve(path), PathOutcome::kFound);
  EXPECT_EQ(mac_text(path.headers.destination_mac), "02:00:00:01:02:03");
  EXPECT_EQ(path.headers.hop_limit, 9);
  path = vector(0, "fe80::1");  // no MAC in it
  EXPECT_EQ(resolve(path), PathOutcome::kNeighbourAsked);
  path = vector(1, address_text(link_local({2, 0, 0, 1, 2, 3})));  // RoCE v2: ND
  EXPECT_EQ(resolve(path), PathOutcome::kNeighbourAsked);
}

TEST_F(Path, GroupsNeedNoNeighbour) {
  auto path = vector(3, "239.1.1.1");
  path.verbs.hop_limit = 2;
  ASSERT_EQ(resolve(path), PathOutcome::kFound);
  EXPECT_EQ(path.headers.hop_limit, 2);
  EXPECT_EQ(mac_text(path.headers.destination_mac), "01:00:5e:01:01:01");
}

TEST_F(Path, WhatNoPathCanBeIsRefused) {
  auto path = vector(200, "10.0.0.2");
  EXPECT_EQ(resolve(path), PathOutcome::kInvalid);
  path = vector(5, "10.0.0.2");  // families differ
  EXPECT_EQ(resolve(path), PathOutcome::kInvalid);
  path = vector(3, "10.0.0.2");
  path.verbs.is_global = 0;
  EXPECT_EQ(resolve(path), PathOutcome::kInvalid);
  path.verbs.is_global = 1;
  path.verbs.port_num = 2;
  EXPECT_EQ(resolve(path), PathOutcome::kInvalid);
  (void)device_->set_addresses({on("n", "fd00::1")});  // the entry is gone
  path.verbs.port_num = 1;
  EXPECT_EQ(resolve(path), PathOutcome::kInvalid);
}

}  // namespace
}  // namespace rocemu::control::testing
