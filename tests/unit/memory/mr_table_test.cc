#include "dataplane/memory/mr_table.h"

#include <gtest/gtest.h>

#include <set>

#include "dataplane/memory/key_cipher.h"
#include "dataplane/memory/moves.h"

namespace rocemu::memory {
namespace {

MrAttr region(std::uint64_t va, std::uint64_t length, std::uint32_t access = kAccessLocalWrite) {
  MrAttr attr;
  attr.pd = PdId{7};
  attr.space = SpaceId{1};
  attr.iova = attr.client_va = va;
  attr.length = length;
  attr.access = access;
  return attr;
}

TEST(KeyCipher, IsAPermutationAndItsOwnInverse) {
  const KeyCipher cipher(Prng(9));
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const std::uint32_t key = cipher.encrypt(i);
    EXPECT_EQ(cipher.decrypt(key), i);
    EXPECT_TRUE(seen.insert(key).second);
  }
}

TEST(MrTable, ZeroOneManyLimitAndOverLimit) {
  MrTable table(3, Prng(1));
  EXPECT_EQ(table.in_use(), 0u);
  EXPECT_EQ(table.lookup(1234, PdId{7}, 0, 1, 0).fault, MrFault::kBadKey);
  std::vector<MrKeys> keys;
  for (int i = 0; i < 3; ++i) keys.push_back(table.add(region(0x1000, 100)).value());
  EXPECT_EQ(table.add(region(0x1000, 100)).error().code, ENOMEM);
  for (const MrKeys& k : keys) {
    EXPECT_EQ(table.lookup(k.rkey, PdId{7}, 0x1000, 100, 0).fault, MrFault::kNone);
  }
}

TEST(MrTable, RangesRightsAndDomains) {
  MrTable table(8, Prng(1));
  const MrKeys k = table.add(region(0x1000, 100, kAccessLocalWrite | kAccessRemoteRead)).value();
  const auto fault = [&](std::uint64_t va, std::uint64_t length, std::uint32_t access,
                         PdId pd = PdId{7}) {
    return table.lookup(k.lkey, pd, va, length, access).fault;
  };
  EXPECT_EQ(fault(0x1000, 100, kAccessRemoteRead), MrFault::kNone);
  EXPECT_EQ(fault(0x1063, 1, 0), MrFault::kNone);
  EXPECT_EQ(fault(0x0fff, 1, 0), MrFault::kOutOfRange);
  EXPECT_EQ(fault(0x1063, 2, 0), MrFault::kOutOfRange);
  EXPECT_EQ(fault(0x1000, ~std::uint64_t{0}, 0), MrFault::kOutOfRange);
  EXPECT_EQ(fault(~std::uint64_t{0}, 2, 0), MrFault::kOutOfRange);
  EXPECT_EQ(fault(0, 0, 0), MrFault::kNone);
  EXPECT_EQ(fault(0, 0, kAccessRemoteWrite), MrFault::kNoRight);
  EXPECT_EQ(fault(0, 0, 0, PdId{8}), MrFault::kWrongPd);
  EXPECT_EQ(fault(0x1000, 1, kAccessRemoteWrite), MrFault::kNoRight);
}

TEST(MrTable, RefusesWrapAndRemoteWriteWithoutLocal) {
  MrTable table(8, Prng(1));
  EXPECT_EQ(table.add(region(~std::uint64_t{0} - 5, 10)).error().code, EINVAL);
  EXPECT_EQ(table.add(region(0, 10, kAccessRemoteWrite)).error().code, EINVAL);
  EXPECT_EQ(table.add(region(0, 10, kAccessRemoteAtomic)).error().code, EINVAL);
}

TEST(MrTable, RetiredKeysMissAndDoNotComeBackForTheSameSlot) {
  MrTable table(1, Prng(5));
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const MrKeys k = table.add(region(0, 10)).value();
    EXPECT_TRUE(seen.insert(k.rkey).second);
    EXPECT_NE(k.rkey, 0u);
    ASSERT_TRUE(table.retire(k.index).ok());
    EXPECT_FALSE(table.retire(k.index).ok());
    table.release(k.index);
    for (const std::uint32_t old : seen) {
      ASSERT_EQ(table.lookup(old, PdId{7}, 0, 1, 0).fault, MrFault::kBadKey);
    }
  }
}

TEST(SplitMoves, PiecesOfMixedRegionsGoTheirWays) {
  std::byte direct[100];
  std::byte local[300];
  MrView view;
  view.client_va = 1000;
  view.offset = 0;
  view.direct_base = direct;
  view.direct_begin = 100;
  view.direct_bytes = 100;
  std::vector<Move> moves;
  split_moves(view, Direction::kFromClient, local, 300, [&](const Move& m) { moves.push_back(m); });
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[0].direct, nullptr);
  EXPECT_EQ(moves[0].length, 100u);
  EXPECT_EQ(moves[1].direct, direct);
  EXPECT_EQ(moves[1].local, local + 100);
  EXPECT_EQ(moves[2].client_va, 1200u);
  EXPECT_FALSE(is_direct(view, 100));
  view.offset = 150;
  EXPECT_TRUE(is_direct(view, 50));
  EXPECT_FALSE(is_direct(view, 51));
  EXPECT_EQ(direct_at(view), direct + 50);
}

}  // namespace
}  // namespace rocemu::memory
