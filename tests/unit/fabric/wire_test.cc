// The built-in wire: who gets a frame, what back-pressure looks like, where slots go. Frames are
// Ethernet headers with a number in the payload.
#include "dataplane/fabric/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace rocemu::fabric {
namespace {

using engine::RxFrame;

constexpr wire::MacAddress mac_of(std::uint8_t n) { return {2, 0, 0, 0, 0, n}; }
constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr std::size_t kFrameBytes = 64;

bool send(Attachment& from, const wire::MacAddress& to, std::uint8_t number,
          std::size_t bytes = kFrameBytes) {
  const auto buffer = from.allocate();
  if (!buffer) return false;
  engine::TxFrame frame;
  frame.buffer = *buffer;
  frame.headers_start = engine::kTxHeadroom - 14;
  frame.headers_bytes = 14;
  frame.length = static_cast<std::uint32_t>(bytes);
  std::byte* p = buffer->base + frame.headers_start;
  std::memset(p, number, bytes);
  std::memcpy(p, to.data(), std::min(bytes, to.size()));
  from.transmit(frame);
  return true;
}

/// Receives and releases everything; the last byte of each frame is its number.
std::vector<int> receive_all(Attachment& at) {
  std::vector<int> numbers;
  std::array<RxFrame, 8> burst;
  while (const std::size_t n = at.receive(burst)) {
    for (const RxFrame& frame : std::span(burst).first(n)) {
      numbers.push_back(std::to_integer<int>(frame.bytes().back()));
    }
    at.release(std::span(burst).first(n));
  }
  return numbers;
}

struct WireTest : testing::Test {
  static constexpr std::uint32_t kSlots = 4;
  Wire wire{kSlots};
  Attachment& a = wire.attach(mac_of(1));
  Attachment& b = wire.attach(mac_of(2));
};

TEST_F(WireTest, BuffersAreAlignedAndHoldTheLargestFrame) {
  const auto buffer = a.allocate();
  ASSERT_TRUE(buffer);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->base) % 64, 0u);
  EXPECT_GE(buffer->capacity, engine::kTxHeadroom + 4096 + 3 + 4);
  a.discard(*buffer);
  EXPECT_EQ(a.free_slots(), kSlots);
}

TEST_F(WireTest, NothingSentNothingReceived) {
  std::array<RxFrame, 4> burst;
  EXPECT_FALSE(b.has_input());
  EXPECT_EQ(b.receive(burst), 0u);
  b.release({});
}

TEST_F(WireTest, OneFrameArrivesWithItsBytesInPlace) {
  ASSERT_TRUE(send(a, mac_of(2), 7));
  EXPECT_TRUE(b.has_input());
  EXPECT_FALSE(a.has_input());
  std::array<RxFrame, 4> burst;
  ASSERT_EQ(b.receive(burst), 1u);
  EXPECT_EQ(burst[0].bytes().size(), kFrameBytes);
  EXPECT_EQ(std::memcmp(burst[0].bytes().data(), mac_of(2).data(), 6), 0);
  EXPECT_EQ(a.free_slots(), kSlots - 1);
  b.release(std::span(burst).first(1));
  EXPECT_EQ(a.free_slots(), kSlots);
}

TEST_F(WireTest, ManyFramesKeepTheirOrder) {
  for (int round = 0; round < 100; ++round) {
    for (std::uint8_t i = 0; i < kSlots; ++i) ASSERT_TRUE(send(a, mac_of(2), i));
    EXPECT_EQ(receive_all(b), (std::vector<int>{0, 1, 2, 3}));
  }
}

TEST_F(WireTest, AFullPoolRefusesAndLosesNothing) {
  for (std::uint8_t i = 0; i < kSlots; ++i) ASSERT_TRUE(send(a, mac_of(2), i));
  EXPECT_FALSE(send(a, mac_of(2), 99));
  EXPECT_EQ(a.discards().sent, 0u);
  EXPECT_EQ(receive_all(b), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(send(a, mac_of(2), 5));
}

TEST_F(WireTest, AFullDirectionLeavesTheOtherFree) {
  while (send(a, mac_of(2), 1)) {
  }
  ASSERT_TRUE(send(b, mac_of(1), 9));
  EXPECT_EQ(receive_all(a), std::vector<int>{9});
}

TEST_F(WireTest, ATakenFrameLivesUntilItsKeeperReleasesIt) {
  ASSERT_TRUE(send(a, mac_of(2), 42));
  std::array<RxFrame, 4> burst;
  ASSERT_EQ(b.receive(burst), 1u);
  const auto kept = burst[0].take();
  ASSERT_TRUE(kept);
  EXPECT_FALSE(burst[0].take());
  b.release(std::span(burst).first(1));
  EXPECT_EQ(a.free_slots(), kSlots - 1);
  for (std::uint8_t i = 0; i < kSlots - 1; ++i) ASSERT_TRUE(send(a, mac_of(2), i));
  EXPECT_FALSE(send(a, mac_of(2), 99));
  EXPECT_EQ(kept->bytes.back(), std::byte{42});
  kept->release(kept->handle);
  EXPECT_EQ(a.free_slots(), 1u);
}

TEST_F(WireTest, FramesToTheOwnAddressComeBack) {
  ASSERT_TRUE(send(a, mac_of(1), 3));
  EXPECT_FALSE(b.has_input());
  EXPECT_EQ(receive_all(a), std::vector<int>{3});
}

TEST_F(WireTest, UnknownAndGroupAddressesGoToEverybodyElse) {
  Attachment& c = wire.attach(mac_of(3));
  ASSERT_TRUE(send(a, kBroadcast, 1));
  ASSERT_TRUE(send(a, mac_of(77), 2));
  EXPECT_EQ(receive_all(b), (std::vector<int>{1, 2}));
  ASSERT_TRUE(send(a, mac_of(3), 3));
  EXPECT_EQ(receive_all(c), (std::vector<int>{1, 2, 3}));
  EXPECT_FALSE(a.has_input());
  EXPECT_EQ(a.free_slots(), kSlots);
}

TEST_F(WireTest, AFloodWithoutASlotForEveryCopyIsCounted) {
  Attachment& c = wire.attach(mac_of(3));
  for (std::uint8_t i = 0; i < kSlots - 1; ++i) ASSERT_TRUE(send(a, mac_of(2), i));
  ASSERT_TRUE(send(a, kBroadcast, 50));
  EXPECT_EQ(a.discards().sent, 1u);
  EXPECT_EQ(receive_all(c), std::vector<int>{50});
  EXPECT_EQ(receive_all(b), (std::vector<int>{0, 1, 2}));
}

TEST_F(WireTest, AllPoolsMayWaitAtOneReceiver) {
  Attachment& c = wire.attach(mac_of(3));
  for (Attachment* from : {&a, &b, &c}) {
    for (std::uint8_t i = 0; i < kSlots; ++i) ASSERT_TRUE(send(*from, mac_of(1), i));
  }
  EXPECT_EQ(receive_all(a).size(), 3 * kSlots);
}

TEST_F(WireTest, AnEndThatIsDownSendsNothing) {
  a.set_up(false);
  EXPECT_FALSE(a.is_up());
  ASSERT_TRUE(send(a, mac_of(2), 1));
  EXPECT_FALSE(b.has_input());
  EXPECT_EQ(a.discards().sent, 1u);
  EXPECT_EQ(a.free_slots(), kSlots);
  a.set_up(true);
  ASSERT_TRUE(send(a, mac_of(2), 2));
  EXPECT_EQ(receive_all(b), std::vector<int>{2});
}

TEST_F(WireTest, AnEndThatIsDownReceivesNothing) {
  ASSERT_TRUE(send(a, mac_of(2), 1));
  b.set_up(false);
  EXPECT_FALSE(b.has_input()) << "what waited is dropped, too";
  ASSERT_TRUE(send(a, mac_of(2), 2));
  EXPECT_FALSE(b.has_input());
  EXPECT_EQ(b.discards().received, 2u);
  EXPECT_EQ(a.free_slots(), kSlots);
}

TEST_F(WireTest, AFrameShorterThanAHeaderIsDropped) {
  ASSERT_TRUE(send(a, mac_of(2), 1, 13));
  ASSERT_TRUE(send(a, mac_of(2), 1, 0));
  EXPECT_FALSE(b.has_input());
  EXPECT_EQ(a.discards().sent, 2u);
  ASSERT_TRUE(send(a, mac_of(2), 1, 14));
  EXPECT_EQ(receive_all(b).size(), 1u);
}

TEST_F(WireTest, AttachmentsEndAtTheLimit) {
  for (std::size_t n = 2; n < kMaxAttachments; ++n)
    wire.attach(mac_of(static_cast<std::uint8_t>(n)));
  EXPECT_THROW(wire.attach(mac_of(200)), std::length_error);
}

TEST(WireAlone, AFloodToNobodyFreesItsSlot) {
  Wire wire(2);
  Attachment& a = wire.attach(mac_of(1));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(send(a, kBroadcast, 1));
  EXPECT_EQ(a.free_slots(), 2u);
}

}  // namespace
}  // namespace rocemu::fabric
