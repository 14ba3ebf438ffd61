// Memory windows in the key table: what a bind may do, what the key of a bound window allows, and
// how windows hold on to their regions. Clauses are those of IBTA 10.6.7.
#include <gtest/gtest.h>

#include <vector>

#include "dataplane/memory/mr_table.h"

namespace rocemu::memory {
namespace {

constexpr PdId kPd{7};
constexpr KeyUser kUser{kPd, QpNum{0x20}};
constexpr std::uint32_t kRemote = kAccessRemoteRead | kAccessRemoteWrite;

struct Windows : ::testing::Test {
  MrKeys add_region(std::uint32_t access = kAccessLocalWrite | kAccessMwBind, PdId pd = kPd) {
    MrAttr attr;
    attr.pd = pd;
    attr.space = SpaceId{1};
    attr.iova = 0x1000;
    attr.client_va = 0x9000;
    attr.length = 0x1000;
    attr.access = access;
    return table.add(attr).value();
  }
  MrKeys add_window(WindowType type) { return table.add_window(kPd, type).value(); }
  WindowBind request(std::uint32_t window_rkey, std::uint8_t new_key = 0x5a) const {
    return {.window_rkey = window_rkey,
            .new_rkey = new_key,
            .region_lkey = region.lkey,
            .va = 0x1100,
            .length = 0x100,
            .access = kRemote};
  }
  MrFault remote(std::uint32_t rkey, std::uint64_t va, std::uint64_t length, std::uint32_t access,
                 const KeyUser& user = kUser) const {
    return table.lookup_remote(rkey, user, va, length, access).fault;
  }
  static std::uint32_t with_key(std::uint32_t rkey, std::uint8_t key) {
    return (rkey & ~0xffu) | key;
  }

  MrTable table{16, Prng(3)};
  MrKeys region = add_region();
};

TEST_F(Windows, KeyIsTheConsumersInItsLowerByteAndTheOldOneIsDead) {
  for (const WindowType type : {WindowType::kType1, WindowType::kType2}) {
    const MrKeys window = add_window(type);
    EXPECT_EQ(remote(window.rkey, 0x1100, 1, 0), MrFault::kBadKey);  // bound to nothing yet
    const auto key = static_cast<std::uint8_t>(window.rkey + 1);
    ASSERT_TRUE(table.bind(request(window.rkey, key), kUser));
    const std::uint32_t rkey = with_key(window.rkey, key);
    EXPECT_EQ(table.rkey(window.index), rkey);
    EXPECT_EQ(remote(window.rkey, 0x1100, 1, 0), MrFault::kBadKey);
    const MrView view = table.lookup_remote(rkey, kUser, 0x1110, 8, kAccessRemoteWrite);
    EXPECT_EQ(view.fault, MrFault::kNone);
    EXPECT_EQ(view.client_va, 0x9110u);
    EXPECT_EQ(view.space, SpaceId{1});
  }
}

TEST_F(Windows, RangeAndRightsAreTheWindowsAndNotTheRegions) {
  const MrKeys window = add_window(WindowType::kType2);
  WindowBind bind = request(window.rkey);
  bind.access = kAccessRemoteRead;
  ASSERT_TRUE(table.bind(bind, kUser));
  const std::uint32_t rkey = with_key(window.rkey, 0x5a);
  EXPECT_EQ(remote(rkey, 0x1100, 0x100, kAccessRemoteRead), MrFault::kNone);
  EXPECT_EQ(remote(rkey, 0x10ff, 1, kAccessRemoteRead), MrFault::kOutOfRange);
  EXPECT_EQ(remote(rkey, 0x11ff, 2, kAccessRemoteRead), MrFault::kOutOfRange);
  EXPECT_EQ(remote(rkey, 0x1100, 1, kAccessRemoteWrite), MrFault::kNoRight);
  EXPECT_EQ(remote(rkey, 0x1100, 1, kAccessRemoteRead, {PdId{8}, kUser.qp}), MrFault::kWrongPd);
  // Of type 2B: another queue pair of the same domain has no use of it.
  EXPECT_EQ(remote(rkey, 0x1100, 1, kAccessRemoteRead, {kPd, QpNum{0x21}}), MrFault::kWrongPd);
  // The region itself allows peers nothing.
  EXPECT_EQ(remote(region.rkey, 0x1100, 1, kAccessRemoteRead), MrFault::kNoRight);
  // A window's key is no lkey.
  EXPECT_EQ(table.lookup(rkey, kPd, 0x1100, 1, 0).fault, MrFault::kBadKey);
}

TEST_F(Windows, TypeOneServesEveryQpOfItsDomain) {
  const MrKeys window = add_window(WindowType::kType1);
  ASSERT_TRUE(table.bind(request(window.rkey), kUser));
  EXPECT_EQ(remote(with_key(window.rkey, 0x5a), 0x1100, 1, kRemote, {kPd, QpNum{0x99}}),
            MrFault::kNone);
}

TEST_F(Windows, ZeroBasedCountsFromTheWindowsBeginning) {
  const MrKeys window = add_window(WindowType::kType2);
  WindowBind bind = request(window.rkey);
  bind.access |= kAccessZeroBased;
  ASSERT_TRUE(table.bind(bind, kUser));
  const std::uint32_t rkey = with_key(window.rkey, 0x5a);
  EXPECT_EQ(table.lookup_remote(rkey, kUser, 0, 0x100, kRemote).client_va, 0x9100u);
  EXPECT_EQ(remote(rkey, 0xff, 1, kRemote), MrFault::kNone);
  EXPECT_EQ(remote(rkey, 0xff, 2, kRemote), MrFault::kOutOfRange);
  EXPECT_EQ(remote(rkey, 0x100, 1, kRemote), MrFault::kOutOfRange);
  EXPECT_EQ(remote(rkey, 0x1100, 1, kRemote), MrFault::kOutOfRange);
  // An offset that would wrap back into the window.
  EXPECT_EQ(remote(rkey, ~std::uint64_t{0} - 0x1000 + 1, 1, kRemote), MrFault::kOutOfRange);
}

TEST_F(Windows, BindsThatTheRulesForbidChangeNothing) {
  const MrKeys plain = add_region(kAccessLocalWrite);
  const MrKeys read_only = add_region(0);
  const MrKeys zero_based = add_region(kAccessLocalWrite | kAccessMwBind | kAccessZeroBased);
  const MrKeys foreign = add_region(kAccessLocalWrite | kAccessMwBind, PdId{8});
  for (const WindowType type : {WindowType::kType1, WindowType::kType2}) {
    const MrKeys window = add_window(type);
    const auto refused = [&](auto&& change, const KeyUser& user = kUser) {
      WindowBind bind = request(window.rkey);
      change(bind);
      const bool is_bound = table.bind(bind, user);
      return !is_bound && table.rkey(window.index) == window.rkey &&
             !table.has_windows(region.index);
    };
    EXPECT_TRUE(refused([&](WindowBind& b) { b.region_lkey = plain.lkey; }));  // C10-73
    EXPECT_TRUE(refused([&](WindowBind& b) { b.region_lkey = read_only.lkey; }));
    EXPECT_TRUE(refused([&](WindowBind& b) { b.region_lkey = zero_based.lkey; }));  // o10-36.2.4
    EXPECT_TRUE(refused([&](WindowBind& b) { b.region_lkey = foreign.lkey; }));     // C10-72
    EXPECT_TRUE(refused([](WindowBind&) {}, {PdId{8}, kUser.qp}));                  // C10-72
    EXPECT_TRUE(refused([](WindowBind& b) { b.va = 0xfff; }));                      // C10-75
    EXPECT_TRUE(refused([](WindowBind& b) { b.length = 0xf01; }));
    EXPECT_TRUE(refused([](WindowBind& b) { b.length = ~std::uint64_t{0}; }));
    EXPECT_TRUE(refused([](WindowBind& b) { b.va = ~std::uint64_t{0} - 5; }));
    EXPECT_TRUE(refused([](WindowBind& b) { b.access |= 1u << 30; }));
    EXPECT_TRUE(refused([&](WindowBind& b) { b.window_rkey = region.rkey; }));
    EXPECT_TRUE(refused([](WindowBind& b) { b.window_rkey ^= 1; }));
    EXPECT_TRUE(refused([&](WindowBind& b) { b.region_lkey = window.rkey; }));
  }
  WindowBind zero_based_type1 = request(add_window(WindowType::kType1).rkey);
  zero_based_type1.access |= kAccessZeroBased;
  EXPECT_FALSE(table.bind(zero_based_type1, kUser));  // o10-36.2.2
  WindowBind nothing = request(add_window(WindowType::kType2).rkey);
  nothing.length = 0;
  EXPECT_FALSE(table.bind(nothing, kUser));  // o10-37.2.40
}

TEST_F(Windows, TypeOneIsBoundAnewAndUnboundByLengthZero) {
  const MrKeys other = add_region();
  const MrKeys window = add_window(WindowType::kType1);
  ASSERT_TRUE(table.bind(request(window.rkey, 1), kUser));
  EXPECT_TRUE(table.has_windows(region.index));
  WindowBind bind = request(with_key(window.rkey, 1), 2);
  bind.region_lkey = other.lkey;
  ASSERT_TRUE(table.bind(bind, kUser));
  EXPECT_FALSE(table.has_windows(region.index));
  EXPECT_TRUE(table.has_windows(other.index));
  EXPECT_FALSE(table.invalidate(with_key(window.rkey, 2), kUser));  // o10-37.2.26
  WindowBind nothing = request(with_key(window.rkey, 2), 3);
  nothing.length = 0;
  nothing.region_lkey = 0;
  ASSERT_TRUE(table.bind(nothing, kUser));
  EXPECT_FALSE(table.has_windows(other.index));
  EXPECT_EQ(remote(with_key(window.rkey, 3), 0x1100, 1, 0), MrFault::kBadKey);
}

TEST_F(Windows, TypeTwoIsBoundOnceUntilItsQpInvalidatesIt) {
  const MrKeys window = add_window(WindowType::kType2);
  EXPECT_FALSE(table.invalidate(window.rkey, kUser));  // bound to nothing
  ASSERT_TRUE(table.bind(request(window.rkey, 1), kUser));
  const std::uint32_t rkey = with_key(window.rkey, 1);
  EXPECT_FALSE(table.bind(request(rkey, 2), kUser));  // o10-37.2.30
  EXPECT_FALSE(table.invalidate(rkey, {kPd, QpNum{0x21}}));
  EXPECT_FALSE(table.invalidate(rkey, {PdId{8}, kUser.qp}));
  EXPECT_FALSE(table.invalidate(with_key(rkey, 9), kUser));
  EXPECT_FALSE(table.invalidate(region.rkey, kUser));
  EXPECT_EQ(remote(rkey, 0x1100, 1, kRemote), MrFault::kNone);
  ASSERT_TRUE(table.invalidate(rkey, kUser));
  EXPECT_EQ(remote(rkey, 0x1100, 1, kRemote), MrFault::kBadKey);
  EXPECT_FALSE(table.has_windows(region.index));
  // Free again: any queue pair of the domain may bind it.
  const KeyUser second{kPd, QpNum{0x21}};
  ASSERT_TRUE(table.bind(request(rkey, 2), second));
  EXPECT_EQ(remote(with_key(rkey, 2), 0x1100, 1, kRemote, second), MrFault::kNone);
}

TEST_F(Windows, RegionsWithWindowsNeitherGoNorChange) {
  const MrKeys window = add_window(WindowType::kType1);
  ASSERT_TRUE(table.bind(request(window.rkey, 1), kUser));
  EXPECT_EQ(table.retire(region.index).error().code, EINVAL);
  EXPECT_EQ(table.replace(region.index, table.attr(region.index)).error().code, EBUSY);
  EXPECT_EQ(remote(with_key(window.rkey, 1), 0x1100, 1, kRemote), MrFault::kNone);
  ASSERT_TRUE(table.retire(window.index).ok());
  table.release(window.index);
  EXPECT_EQ(remote(with_key(window.rkey, 1), 0x1100, 1, kRemote), MrFault::kBadKey);
  EXPECT_TRUE(table.retire(region.index).ok());
}

TEST_F(Windows, ReplacedRegionsKeepTheirKeys) {
  MrAttr attr = table.attr(region.index);
  attr.pd = PdId{8};
  attr.iova = attr.client_va = 0x5000;
  attr.access = kAccessLocalWrite | kAccessRemoteRead;
  ASSERT_TRUE(table.replace(region.index, attr).ok());
  EXPECT_EQ(table.lookup(region.lkey, kPd, 0x5000, 1, 0).fault, MrFault::kWrongPd);
  EXPECT_EQ(table.lookup(region.lkey, PdId{8}, 0x5000, 1, kAccessRemoteRead).client_va, 0x5000u);
  attr.access = kAccessRemoteWrite;
  EXPECT_EQ(table.replace(region.index, attr).error().code, EINVAL);
  EXPECT_EQ(table.lookup(region.lkey, PdId{8}, 0x5000, 1, kAccessRemoteRead).fault, MrFault::kNone);
  EXPECT_EQ(table.replace(add_window(WindowType::kType1).index, attr).error().code, EINVAL);
}

TEST_F(Windows, ZeroOneManyLimitAndOverLimitShareTheTableWithRegions) {
  std::vector<MrKeys> all;
  while (table.in_use() < 16) all.push_back(add_window(WindowType::kType2));
  EXPECT_EQ(all.size(), 15u);
  EXPECT_EQ(table.add_window(kPd, WindowType::kType2).error().code, ENOMEM);
  ASSERT_TRUE(table.retire(all[3].index).ok());
  EXPECT_FALSE(table.retire(all[3].index).ok());
  table.release(all[3].index);
  const MrKeys again = add_window(WindowType::kType2);
  EXPECT_EQ(again.index, all[3].index);
  EXPECT_NE(again.rkey & ~0xffu, 0u);
  EXPECT_NE(again.rkey, all[3].rkey);
}

}  // namespace
}  // namespace rocemu::memory
