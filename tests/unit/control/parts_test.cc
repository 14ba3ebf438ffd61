// The parts below the front end: ring memory, handles, event pipes, the loop, addresses, sysfs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "control/addresses.h"
#include "control/context_memory.h"
#include "control/counters_file.h"
#include "control/event_loop.h"
#include "control/event_pipe.h"
#include "control/handle_table.h"
#include "control/listener.h"
#include "control/sysfs.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

std::vector<GidEntry> make_table(const wire::MacAddress& mac,
                                 const std::vector<wire::Gid>& addresses) {
  std::vector<DeviceAddress> all;
  for (const wire::Gid& gid : addresses) all.push_back({gid, std::nullopt, {}});
  std::vector<GidEntry> table;
  (void)update_gid_table(table, 256, with_link_local(mac, {}, all));
  return table;
}

constexpr std::uint64_t kPage = RingAllocator::kPageBytes;

TEST(RingAllocator, OffsetsDescendWithoutGaps) {
  RingAllocator allocator(10 * kPage);
  EXPECT_EQ(allocator.allocate(1), 9 * kPage);
  EXPECT_EQ(allocator.allocate(kPage), 8 * kPage);
  EXPECT_EQ(allocator.allocate(kPage + 1), 6 * kPage);
}

TEST(RingAllocator, NothingIsLeftAtTheEndAndFreedSpaceComesBack) {
  RingAllocator allocator(2 * kPage);
  const auto first = allocator.allocate(kPage);
  ASSERT_TRUE(first);
  EXPECT_TRUE(allocator.allocate(kPage));
  EXPECT_FALSE(allocator.allocate(1));
  allocator.release(*first, kPage);
  EXPECT_EQ(allocator.allocate(kPage), first);
  EXPECT_FALSE(allocator.allocate(1));
}

TEST(RingAllocator, RefusesNothingAndEverything) {
  RingAllocator allocator(kPage);
  EXPECT_FALSE(allocator.allocate(0));
  EXPECT_FALSE(allocator.allocate(~std::uint64_t{0}));
  EXPECT_FALSE(allocator.allocate(kPage + 1));
}

TEST(ContextMemory, CannotBeResizedAndReleasedPagesAreZero) {
  auto memory = ContextMemory::make();
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate(memory->fd(), 0), 0);
  EXPECT_NE(::ftruncate(memory->fd(), static_cast<off_t>(2 * ContextMemory::kBytes)), 0);
  const auto offset = memory->allocate(kPage);
  ASSERT_TRUE(offset);
  memory->bytes()[*offset] = std::byte{7};
  memory->release(*offset, kPage);
  EXPECT_EQ(memory->bytes()[*offset], std::byte{0});
}

TEST(HandleTable, HandlesRestBeforeTheyAreUsedAgain) {
  HandleTable<int> table(1000);
  ASSERT_EQ(table.next_handle(), 0u);
  table.add(1);
  table.remove(0);
  EXPECT_EQ(table.find(0), nullptr);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 50; ++i) {
    const auto handle = table.next_handle();
    ASSERT_TRUE(handle);
    table.add(i + 0);
    EXPECT_TRUE(seen.insert(*handle).second) << "handle " << *handle << " came back at once";
    table.remove(*handle);
  }
  EXPECT_EQ(table.count(), 0u);
}

TEST(HandleTable, TheLimitIsAnError) {
  HandleTable<int> table(3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(table.next_handle());
    table.add(i + 0);
  }
  EXPECT_FALSE(table.next_handle());
  EXPECT_EQ(table.find(3), nullptr);
  EXPECT_EQ(table.find(~0u), nullptr);
  table.remove(1);
  EXPECT_EQ(table.next_handle(), 1u);
}

std::array<std::byte, 8> record(std::uint64_t cookie) {
  std::array<std::byte, 8> out;
  store(out.data(), cookie);
  return out;
}

std::uint64_t read_record(int fd) {
  std::array<std::byte, 8> bytes{};
  EXPECT_EQ(::read(fd, bytes.data(), bytes.size()), 8);
  return load<std::uint64_t>(bytes.data());
}

TEST(EventPipe, WithdrawsOnlyWhatWasNotReadAndOnlyOfThatObject) {
  auto pipe = EventPipe::make(8);
  ASSERT_TRUE(pipe.ok());
  const UniqueFd reader = pipe->take_read_end();
  for (const std::uint64_t cookie : {1u, 2u, 1u, 3u, 1u}) pipe->push(record(cookie));
  EXPECT_EQ(read_record(reader.get()), 1u);
  EXPECT_EQ(pipe->withdraw(1), 2u);
  EXPECT_EQ(read_record(reader.get()), 2u);
  EXPECT_EQ(read_record(reader.get()), 3u);
  EXPECT_EQ(pipe->withdraw(1), 0u);
}

TEST(EventPipe, AFullPipeLosesNothing) {
  auto pipe = EventPipe::make(8);
  ASSERT_TRUE(pipe.ok());
  const UniqueFd reader = pipe->take_read_end();
  constexpr std::uint64_t kCount = 20'000;  // a pipe holds 8192
  for (std::uint64_t i = 0; i < kCount; ++i) pipe->push(record(i));
  EXPECT_TRUE(pipe->is_waiting());
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(read_record(reader.get()), i);
    (void)pipe->flush();
  }
  EXPECT_FALSE(pipe->is_waiting());
}

TEST(EventPipe, TheApplicationsFlagsAreItsOwn) {
  auto pipe = EventPipe::make(8);
  ASSERT_TRUE(pipe.ok());
  const UniqueFd reader = pipe->take_read_end();
  EXPECT_EQ(::fcntl(reader.get(), F_GETFL) & O_NONBLOCK, 0);
  (void)pipe->withdraw(1);
  EXPECT_EQ(::fcntl(reader.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(EventLoop, TimersRunInOrderAndCancelledOnesDoNot) {
  EventLoop loop;
  std::string order;
  loop.after(std::chrono::milliseconds(2), [&] { order += 'b'; });
  loop.after(std::chrono::milliseconds(1), [&] { order += 'a'; });
  const auto cancelled = loop.after(std::chrono::milliseconds(1), [&] { order += 'x'; });
  loop.after(std::chrono::milliseconds(3), [&] { loop.stop(); });
  loop.cancel(cancelled);
  loop.run();
  EXPECT_EQ(order, "ab");
}

TEST(EventLoop, AHandlerMayRemoveItselfAndOthers) {
  EventLoop loop;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const UniqueFd second(::dup(ends[0]));
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  int calls = 0;
  const auto handler = [&](std::uint32_t) {
    ++calls;
    loop.remove(reader.get());
    loop.remove(second.get());
    loop.after(std::chrono::milliseconds(1), [&] { loop.stop(); });
  };
  loop.add(reader.get(), EPOLLIN, handler);
  loop.add(second.get(), EPOLLIN, handler);
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(Addresses, TheGidTableIsInLinuxOrder) {
  const wire::MacAddress mac = {0x02, 0x00, 0x52, 0x6f, 0x00, 0x01};
  const auto table =
      make_table(mac, {parse_address("10.1.2.3").value(), parse_address("fd00::7").value()});
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(gid_text(table[0].gid), "fe80:0000:0000:0000:0000:52ff:fe6f:0001");
  EXPECT_EQ(gid_text(table[3].gid), "0000:0000:0000:0000:0000:ffff:0a01:0203");
  EXPECT_EQ(gid_text(table[5].gid), "fd00:0000:0000:0000:0000:0000:0000:0007");
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].type, i % 2 == 0 ? GidType::kRoceV1 : GidType::kRoceV2);
  }
}

TEST(Addresses, NonsenseIsRefused) {
  for (const char* text : {"", "10.0.0", "10.0.0.256", "fd00:::1", "host", "/24"}) {
    EXPECT_FALSE(parse_address(text).ok()) << text;
  }
  for (const char* text : {"", "02:00:52:6f:00", "02:00:52:6f:00:01:02", "01:00:52:6f:00:01",
                           "zz:00:52:6f:00:01", "02:00:52:6f:00:01 "}) {
    EXPECT_FALSE(parse_mac(text).ok()) << text;
  }
}

TEST(Addresses, TheUdpSourcePortIsInTheDynamicRangeAndTheSameForBothDirections) {
  for (const std::uint32_t label : {0u, 1u, 0x3fffu, 0xf'ffffu}) {
    const auto port = udp_source_port(label, QpNum{0x12345}, QpNum{0x54321});
    EXPECT_GE(port, 0xc000);
    EXPECT_EQ(port, udp_source_port(label, QpNum{0x54321}, QpNum{0x12345}));
  }
  // 5 * 7 = 35 folds to itself.
  EXPECT_EQ(udp_source_port(0, QpNum{5}, QpNum{7}), 0xc000 | 35);
}

std::string text_of(const std::filesystem::path& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

TEST(Sysfs, TheTreeIsWhatLibibverbsReads) {
  const TemporaryDir directory;
  const std::filesystem::path root = directory.path() + "/sys";
  const wire::MacAddress mac = {0x02, 0x00, 0x52, 0x6f, 0x00, 0x01};
  const SysfsDevice device{
      "roce0", node_guid(mac), mac, make_table(mac, {parse_address("10.1.2.3").value()}),
      16,      true,           ""};
  ASSERT_TRUE(write_sysfs(root, {device}).ok());
  const auto verbs = root / "class/infiniband_verbs";
  EXPECT_EQ(text_of(verbs / "abi_version"), "6");
  EXPECT_EQ(text_of(verbs / "uverbs0/ibdev"), "roce0");
  EXPECT_EQ(text_of(verbs / "uverbs0/dev"), "231:192");
  EXPECT_EQ(text_of(verbs / "uverbs0/device/modalias"), "rdma_device:Nrxe_roce0");
  const auto port = root / "class/infiniband/roce0/ports/1";
  EXPECT_EQ(text_of(port / "state"), "4: ACTIVE");
  EXPECT_EQ(text_of(port / "gid_attrs/types/3"), "RoCE v2");
  EXPECT_EQ(text_of(port / "gids/3"), "0000:0000:0000:0000:0000:ffff:0a01:0203");
  EXPECT_TRUE(std::filesystem::exists(port / "gid_attrs/types/15"));
  EXPECT_FALSE(std::filesystem::exists(port / "gid_attrs/types/16"));
  EXPECT_TRUE(std::filesystem::exists(port / "hw_counters/out_of_sequence"));
  ASSERT_TRUE(write_link_state(root, "roce0", false).ok());
  EXPECT_EQ(text_of(port / "state"), "1: DOWN");
}

TEST(Sysfs, OnlyCountersAreLiveAttributes) {
  const auto path = parse_counter_path("class/infiniband/roce0/ports/1/counters/port_rcv_packets");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path.value().device, "roce0");
  EXPECT_EQ(kCounterInfo[path.value().counter_index].name, "port_rcv_packets");
  for (const char* text :
       {"", "class/infiniband/roce0/ports/1/state", "class/infiniband/roce0",
        "class/infiniband/roce0/ports/2/counters/port_rcv_packets",
        "class/infiniband/roce0/ports/1/hw_counters/port_rcv_packets",
        "class/infiniband/roce0/ports/1/counters/../../../../passwd",
        "class/infiniband/roce0/ports/1/counters/drop_bad_icrc", "../../etc/passwd"}) {
    EXPECT_FALSE(parse_counter_path(text).ok()) << text;
  }
}

TEST(CountersFile, IsTakenAsCompleteOnlyWhenPublished) {
  const TemporaryDir directory;
  auto file = CountersFile::make(directory.path() + "/counters", {"a", "b"}, 1);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->header().magic, 0u);
  file->block(1, 0).add(Counter::port_rcv_packets, 5);
  EXPECT_EQ(file->total(1, static_cast<std::size_t>(Counter::port_rcv_packets)), 5u);
  EXPECT_EQ(file->total(0, static_cast<std::size_t>(Counter::port_rcv_packets)), 0u);
  file->publish();
  EXPECT_EQ(file->header().magic, kCountersMagic);
  EXPECT_FALSE(CountersFile::make(directory.path() + "/none/counters", {"a"}, 1).ok());
}

TEST(Listener, AnOverlongPathIsAClearError) {
  const auto fd = listen_at("/tmp/" + std::string(200, 'x'), SOCK_STREAM);
  ASSERT_FALSE(fd.ok());
  EXPECT_EQ(fd.error().code, ENAMETOOLONG);
}

TEST(Listener, OnlyADeadSocketIsRemoved) {
  const TemporaryDir directory;
  const std::string path = directory.path() + "/s";
  auto listener = listen_at(path, SOCK_SEQPACKET);
  ASSERT_TRUE(listener.ok());
  remove_stale_socket(path);
  EXPECT_TRUE(std::filesystem::exists(path));
  listener->reset();
  remove_stale_socket(path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace rocemu::control::testing
