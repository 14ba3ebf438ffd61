// Big-endian access at any alignment, and the reader that remembers failure. Buffers are exact-size
// heap blocks, so that the sanitizer sees a byte too many.
#include "rocemu/base/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

namespace rocemu {
namespace {

template <typename T>
class BigEndian : public ::testing::Test {};
using Widths = ::testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(BigEndian, Widths);

TYPED_TEST(BigEndian, MostSignificantByteFirstAtEveryAlignment) {
  constexpr std::size_t kWidth = sizeof(TypeParam);
  constexpr auto kValue = static_cast<TypeParam>(0x0102'0304'0506'0708);
  for (std::size_t at = 0; at < 8; ++at) {
    const auto block = std::make_unique<std::byte[]>(at + kWidth);
    store_be<TypeParam>(block.get() + at, kValue);
    for (std::size_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(std::to_integer<unsigned>(block[at + i]), 9 - kWidth + i);
    }
    EXPECT_EQ(load_be<TypeParam>(block.get() + at), kValue);
  }
}

TEST(Bytes, ThreeByteFieldsKeepTheirNeighbour) {
  const auto block = std::make_unique<std::byte[]>(4);
  block[0] = std::byte{0xee};
  store_be24(block.get() + 1, 0xffab'cdef);
  EXPECT_EQ(load_be24(block.get() + 1), 0xab'cdefu);
  EXPECT_EQ(block[0], std::byte{0xee});
  EXPECT_EQ(block[1], std::byte{0xab});
  EXPECT_EQ(block[3], std::byte{0xef});
}

TEST(Bytes, HostOrderLoadUndoesStoreUnaligned) {
  struct Pair {
    std::uint32_t a;
    std::uint64_t b;
  };
  const auto block = std::make_unique<std::byte[]>(1 + sizeof(Pair));
  store(block.get() + 1, Pair{7, 9});
  const auto back = load<Pair>(block.get() + 1);
  EXPECT_EQ(back.a, 7u);
  EXPECT_EQ(back.b, 9u);
}

TEST(ByteReader, ReadsInOrderToTheLastByte) {
  const auto block = std::make_unique<std::byte[]>(12);
  for (std::size_t i = 0; i < 12; ++i) block[i] = static_cast<std::byte>(i);
  ByteReader reader({block.get(), 12});
  EXPECT_EQ(reader.be<std::uint8_t>(), 0u);
  EXPECT_EQ(reader.be<std::uint16_t>(), 0x0102u);
  EXPECT_EQ(reader.be24(), 0x03'0405u);
  reader.skip(1);
  EXPECT_EQ(reader.offset(), 7u);
  EXPECT_EQ(reader.remaining(), 5u);
  const auto rest = reader.bytes(5);
  ASSERT_EQ(rest.size(), 5u);
  EXPECT_EQ(rest.data(), block.get() + 7);
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_TRUE(reader.ok());
}

TEST(ByteReader, OneReadTooManyFailsItForGood) {
  const auto block = std::make_unique<std::byte[]>(3);
  block[0] = block[1] = block[2] = std::byte{0xff};
  ByteReader reader({block.get(), 3});
  EXPECT_EQ(reader.be<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.be<std::uint8_t>(), 0u) << "there is a byte, but the reader has failed";
  EXPECT_TRUE(reader.bytes(0).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, HugeLengthsDoNotWrap) {
  const auto block = std::make_unique<std::byte[]>(4);
  ByteReader skipping({block.get(), 4});
  skipping.skip(2);
  skipping.skip(~std::size_t{0});
  EXPECT_FALSE(skipping.ok());
  ByteReader taking({block.get(), 4});
  EXPECT_TRUE(taking.bytes(~std::size_t{0} - 1).empty());
  EXPECT_FALSE(taking.ok());
}

TEST(ByteReader, NothingIsReadFromNothing) {
  ByteReader reader({});
  EXPECT_TRUE(reader.ok());
  reader.skip(0);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.be<std::uint8_t>(), 0u);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace rocemu
