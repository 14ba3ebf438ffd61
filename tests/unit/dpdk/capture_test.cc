// pcapng files, read back block by block.
#include "dataplane/dpdk/capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "rocemu/base/bytes.h"
#include "tests/unit/dpdk/rig.h"

namespace rocemu::dpdk {
namespace {

struct Block {
  std::uint32_t type = 0;
  std::vector<std::byte> body;
};
struct Packet {
  std::uint64_t time_ns = 0;
  std::uint32_t length = 0;
  std::vector<std::byte> bytes;
  std::uint32_t flags = 0;
};

/// Keeps a file descriptor of what a Capture, which closes its own, writes.
class CaptureFile {
 public:
  CaptureFile() : fd_(::memfd_create("capture", MFD_CLOEXEC)) {}
  ~CaptureFile() { ::close(fd_); }
  int for_writer() const { return ::dup(fd_); }

  std::vector<Block> blocks() const {
    const auto size = static_cast<std::size_t>(::lseek(fd_, 0, SEEK_END));
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(::pread(fd_, bytes.data(), size, 0), static_cast<ssize_t>(size));
    std::vector<Block> out;
    for (std::size_t at = 0; at + 12 <= size;) {
      const auto length = load<std::uint32_t>(bytes.data() + at + 4);
      EXPECT_EQ(length % 4, 0u);
      EXPECT_LE(at + length, size);
      EXPECT_EQ(load<std::uint32_t>(bytes.data() + at + length - 4), length);
      if (length < 12 || at + length > size) return out;
      const auto* p = bytes.data() + at;
      out.push_back({load<std::uint32_t>(p), {p + 8, p + length - 4}});
      at += length;
    }
    return out;
  }

  std::vector<Packet> packets() const {
    std::vector<Packet> out;
    for (const Block& block : blocks()) {
      if (block.type != 6) continue;
      const std::byte* p = block.body.data();
      Packet packet;
      packet.time_ns = std::uint64_t{load<std::uint32_t>(p + 4)} << 32 | load<std::uint32_t>(p + 8);
      const auto kept = load<std::uint32_t>(p + 12);
      packet.length = load<std::uint32_t>(p + 16);
      packet.bytes.assign(p + 20, p + 20 + kept);
      const std::byte* options = p + 20 + (kept + 3) / 4 * 4;
      EXPECT_EQ(load<std::uint16_t>(options), 2);
      packet.flags = load<std::uint32_t>(options + 4);
      out.push_back(packet);
    }
    return out;
  }

 private:
  int fd_;
};

std::vector<std::byte> numbered(std::size_t bytes, std::uint8_t value) {
  return std::vector<std::byte>(bytes, std::byte{value});
}

TEST(Capture, AnEmptyCaptureIsAWholeFile) {
  CaptureFile file;
  { auto capture = Capture::make(file.for_writer(), {.interface_name = "roce0"}).value(); }
  const auto blocks = file.blocks();
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].type, 0x0a0d'0d0au);
  EXPECT_EQ(load<std::uint32_t>(blocks[0].body.data()), 0x1a2b'3c4du);
  EXPECT_EQ(blocks[1].type, 1u);
  EXPECT_EQ(blocks[2].type, 5u);
}

TEST(Capture, FramesKeepBytesLengthDirectionAndOrder) {
  CaptureFile file;
  {
    auto capture =
        Capture::make(file.for_writer(), {.interface_name = "roce0", .snap_bytes = 64}).value();
    for (std::size_t bytes = 14; bytes < 100; ++bytes) {
      capture->record(Time{static_cast<std::int64_t>(bytes)},
                      bytes % 2 == 0 ? CaptureDirection::kInbound : CaptureDirection::kOutbound,
                      numbered(bytes, static_cast<std::uint8_t>(bytes)));
    }
    EXPECT_EQ(capture->totals().recorded_frames, 86u);
  }
  const auto packets = file.packets();
  ASSERT_EQ(packets.size(), 86u);
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const std::size_t bytes = 14 + i;
    EXPECT_EQ(packets[i].length, bytes);
    EXPECT_EQ(packets[i].bytes,
              numbered(std::min<std::size_t>(bytes, 64), static_cast<std::uint8_t>(bytes)));
    EXPECT_EQ(packets[i].flags, bytes % 2 == 0 ? 1u : 2u);
    EXPECT_EQ(packets[i].time_ns, packets[0].time_ns + i);
  }
}

TEST(Capture, TheRingWrapsWithoutLoss) {
  CaptureFile file;
  constexpr std::size_t kFrames = 2'000;
  {
    auto capture =
        Capture::make(file.for_writer(), {.interface_name = "x", .buffer_bytes = 128 << 10})
            .value();
    for (std::size_t i = 0; i < kFrames; ++i) {
      const auto frame = numbered(1000 + i % 7, static_cast<std::uint8_t>(i));
      for (std::uint64_t before = capture->totals().recorded_frames;
           capture->totals().recorded_frames == before;) {
        capture->record(Time{}, CaptureDirection::kInbound, frame);
      }
    }
  }
  const auto packets = file.packets();
  ASSERT_EQ(packets.size(), kFrames);
  for (std::size_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(packets[i].bytes, numbered(1000 + i % 7, static_cast<std::uint8_t>(i))) << i;
  }
}

TEST(Capture, WhatTheDiskDoesNotTakeIsCounted) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  const auto refused = Capture::make(full, {.interface_name = "x"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ENOSPC);
  CaptureFile file;
  {
    auto capture =
        Capture::make(file.for_writer(), {.interface_name = "x", .buffer_bytes = 128 << 10})
            .value();
    std::vector<std::byte> frame(65'535);
    for (int i = 0; i < 10'000; ++i) capture->record(Time{}, CaptureDirection::kInbound, frame);
    const auto totals = capture->totals();
    EXPECT_EQ(totals.recorded_frames + totals.dropped_frames, 10'000u);
    EXPECT_GT(totals.dropped_frames, 0u);
  }
}

TEST(Capture, OptionsOutOfRangeAreRefused) {
  CaptureFile file;
  using Options = CaptureOptions;
  for (const Options& bad : {Options{.interface_name = "x", .snap_bytes = 63},
                             Options{.interface_name = "x", .snap_bytes = 65'536},
                             Options{.interface_name = "x", .buffer_bytes = 1000},
                             Options{.interface_name = "x", .buffer_bytes = 64 << 10}}) {
    const auto made = Capture::make(file.for_writer(), bad);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, EINVAL);
  }
}

TEST(Capture, AWorkerRecordsBothDirectionsWhileItRuns) {
  test::Rig rig;
  rig.worker->start();
  CaptureFile file;
  const auto send = [&](std::size_t from, const wire::MacAddress& to, std::size_t bytes) {
    const auto frame = test::other_frame(to, bytes);
    return rig.worker->run([&] { return rig.worker->send_raw(from, frame); });
  };
  ASSERT_TRUE(send(0, test::kMacB, 100));
  auto capture = Capture::make(file.for_writer(), {.interface_name = "roce1"}).value();
  ASSERT_TRUE(rig.await<PuntedFrame>());
  ASSERT_TRUE(
      rig.worker->run([&] { return rig.worker->start_capture(1, std::move(capture)); }).ok());
  ASSERT_TRUE(send(0, test::kMacB, 101));
  ASSERT_TRUE(rig.await<PuntedFrame>());
  ASSERT_TRUE(send(1, test::kMacA, 102));
  ASSERT_TRUE(rig.await<PuntedFrame>());
  auto second = Capture::make(file.for_writer(), {.interface_name = "roce1"}).value();
  EXPECT_FALSE(
      rig.worker->run([&] { return rig.worker->start_capture(1, std::move(second)); }).ok());
  second.reset();
  EXPECT_TRUE(rig.worker->run([&] { return rig.worker->stop_capture(1); }));
  EXPECT_FALSE(rig.worker->run([&] { return rig.worker->stop_capture(1); }));
  ASSERT_TRUE(send(0, test::kMacB, 103));
  ASSERT_TRUE(rig.await<PuntedFrame>());
  const auto packets = file.packets();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].length, 101u);
  EXPECT_EQ(packets[0].flags, 1u);
  EXPECT_EQ(packets[1].length, 102u);
  EXPECT_EQ(packets[1].flags, 2u);
}

}  // namespace
}  // namespace rocemu::dpdk
