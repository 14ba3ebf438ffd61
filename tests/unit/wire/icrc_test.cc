// The ICRC: every kernel against a bit-by-bit reference, the order of the copy's stores, the
// constants against published ones, and the masked fields against the specification's list.
#include "dataplane/wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/wire/crc32_math.h"
#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

using test::ExactBlock;
using test::Frame;

// One bit at a time, from the definition: reflected, polynomial 0x04c11db7.
std::uint32_t reference(std::uint32_t state, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? 0xedb8'8320u : 0u);
  }
  return state;
}

std::vector<IcrcKernel> supported_kernels() {
  std::vector<IcrcKernel> out;
  for (const IcrcKernel& kernel : icrc_kernels()) {
    if (kernel.is_supported()) out.push_back(kernel);
  }
  return out;
}

TEST(IcrcKernels, TheFastestSupportedOneIsChosenAndThePortableOneIsAlwaysThere) {
  const auto kernels = supported_kernels();
  ASSERT_FALSE(kernels.empty());
  EXPECT_EQ(active_icrc_kernel().name, kernels.front().name);
  EXPECT_EQ(kernels.back().name, "portable");
}

TEST(IcrcKernels, GiveTheCheckValueOfTheCrc) {
  const Frame digits = test::from_hex("313233343536373839");
  for (const IcrcKernel& kernel : supported_kernels()) {
    EXPECT_EQ(~kernel.update(0xffff'ffff, digits.data(), digits.size()), 0xcbf4'3926u)
        << kernel.name;
  }
}

TEST(IcrcKernels, AgreeWithTheReferenceForAllLengthsAndAlignments) {
  constexpr std::size_t kLongest = 1024;
  Prng prng(11);
  for (std::size_t align = 0; align < 64; align += 3) {
    const Frame data = test::random_bytes(kLongest, prng);
    const auto seed = static_cast<std::uint32_t>(prng.next());
    std::uint32_t expected = seed;
    for (std::size_t n = 0; n <= kLongest; ++n) {
      if (n > 0) expected = reference(expected, {&data[n - 1], 1});
      Frame shifted(align);
      shifted.insert(shifted.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(n));
      const ExactBlock block(shifted);
      for (const IcrcKernel& kernel : supported_kernels()) {
        ASSERT_EQ(kernel.update(seed, block.bytes().data() + align, n), expected)
            << kernel.name << " length " << n << " alignment " << align;
      }
    }
  }
}

TEST(IcrcKernels, CopyWhatTheySumAndNothingElse) {
  constexpr std::byte kGuard{0xa5};
  Prng prng(12);
  for (std::size_t n = 0; n <= 1024; n += n < 300 ? 1 : 7) {
    const Frame data = test::random_bytes(n, prng);
    const ExactBlock source(data);
    const std::size_t align = prng.below(64);
    for (const IcrcKernel& kernel : supported_kernels()) {
      ExactBlock target(Frame(align + n, kGuard));
      const std::uint32_t state = kernel.copy(7, target.data() + align, source.bytes().data(), n);
      ASSERT_EQ(state, reference(7, data)) << kernel.name << " length " << n;
      ASSERT_TRUE(std::equal(data.begin(), data.end(), target.data() + align)) << kernel.name;
      ASSERT_TRUE(std::all_of(target.data(), target.data() + align,
                              [](std::byte b) { return b == kGuard; }));
    }
  }
}

TEST(IcrcKernels, LongBuffersAndSplitUpdatesAgree) {
  Prng prng(13);
  const Frame data = test::random_bytes(9001, prng);
  const std::uint32_t whole = reference(1, data);
  for (const IcrcKernel& kernel : supported_kernels()) {
    EXPECT_EQ(kernel.update(1, data.data(), data.size()), whole) << kernel.name;
    std::uint32_t state = 1;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t n = std::min<std::size_t>(prng.below(900), data.size() - at);
      state = kernel.update(state, &data[at], n);
      at += n;
    }
    EXPECT_EQ(state, whole) << kernel.name;
  }
}

TEST(Icrc, FoldingConstantsAreThePublishedOnes) {
  // x^(128 k +- 32) mod P, reflected: as printed in the literature on folding CRC-32.
  EXPECT_EQ(crc32::fold_by(512).low, 0x1'5444'2bd4u);
  EXPECT_EQ(crc32::fold_by(512).high, 0x1'c6e4'1596u);
  EXPECT_EQ(crc32::fold_by(128).low, 0x1'7519'97d0u);
  EXPECT_EQ(crc32::fold_by(128).high, 0x0'ccaa'009eu);
}

TEST(Icrc, TheSeedIsTheRegisterAfterEightBytesOfOnes) {
  const Frame lrh(8, std::byte{0xff});
  EXPECT_EQ(reference(0xffff'ffff, lrh), 0xdebb'20e3u);
}

TEST(Icrc, IsStoredLeastSignificantByteFirst) {
  const auto block = std::make_unique<std::byte[]>(4);
  store_icrc(block.get(), 0x1122'3344);
  EXPECT_EQ(block[0], std::byte{0x44});
  EXPECT_EQ(block[3], std::byte{0x11});
  EXPECT_EQ(load_icrc(block.get()), 0x1122'3344u);
}

TEST(Icrc, UpdateAndCopyUseTheSameRegister) {
  Prng prng(14);
  const Frame data = test::random_bytes(777, prng);
  Frame to(data.size());
  const Icrc begin{5};
  EXPECT_EQ(icrc_copy(begin, to.data(), data.data(), data.size()).state,
            icrc_update(begin, data).state);
  EXPECT_EQ(to, data);
  EXPECT_EQ(icrc_finish(icrc_update(begin, data)), ~reference(5, data));
}

// Byte offsets from the network header whose bits a router may change (7.8.1, A17.4.4), other than
// the low half of the first byte for IPv6 and GRH. 28, 40, 48 and +4: the BTH's FECN, BECN, Resv8a.
std::vector<std::size_t> masked_bytes(RoceKind kind) {
  switch (kind) {
    case RoceKind::kV1:
      return {1, 2, 3, 7, 40 + 4};
    case RoceKind::kV2Ipv4:
      return {1, 8, 10, 11, 26, 27, 28 + 4};
    case RoceKind::kV2Ipv6:
      return {1, 2, 3, 7, 46, 47, 48 + 4};
  }
  return {};
}

TEST(Icrc, ExactlyTheVariantBitsAreMasked) {
  Prng prng(15);
  for (const test::Shape& shape : test::all_shapes()) {
    const Packet packet = test::random_packet(shape, 0, prng);
    Frame frame = test::encode(packet, {}, test::PathForm::kHeaders);
    const std::size_t l3 = kEthernetBytes + (shape.has_vlan ? kVlanBytes : 0);
    const bool is_v1 = shape.kind == RoceKind::kV1;
    const std::span<const std::byte> headers(frame.data(), frame.size() - kIcrcBytes);
    const std::uint32_t before = icrc_begin(headers, l3, is_v1).state;
    const auto masked = masked_bytes(shape.kind);
    for (std::size_t bit = 0; bit < headers.size() * 8; ++bit) {
      const std::size_t at = bit / 8;
      if (at == l3 && bit % 8 >= 4) continue;  // the version: another layout
      frame[at] ^= std::byte{1} << bit % 8;
      const bool is_link = at < l3;
      const bool is_label = at == l3 && shape.kind != RoceKind::kV2Ipv4;
      const bool is_variant =
          is_link || is_label || std::ranges::find(masked, at - l3) != masked.end();
      ASSERT_EQ(icrc_begin(headers, l3, is_v1).state == before, is_variant)
          << packet.info().name << " offset " << at - l3;
      frame[at] ^= std::byte{1} << bit % 8;
    }
  }
}

}  // namespace
}  // namespace rocemu::wire
