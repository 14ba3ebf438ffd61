// The small value types of base: ids, time, Result, and the check that stops the process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <concepts>
#include <memory>
#include <string>

#include "rocemu/base/check.h"
#include "rocemu/base/ids.h"
#include "rocemu/base/result.h"
#include "rocemu/base/time.h"

namespace rocemu {
namespace {

static_assert(!std::convertible_to<QpIndex, CqIndex>, "identities of two kinds never mix");
static_assert(!std::equality_comparable_with<QpIndex, CqIndex>);
static_assert(sizeof(QpNum) == 4 && sizeof(FrameToken) == 8);

TEST(Id, NoneIsNoIndex) {
  EXPECT_TRUE(QpIndex::none().is_none());
  EXPECT_TRUE(QpIndex{}.is_none());
  EXPECT_FALSE(QpIndex{0}.is_none());
  EXPECT_LT(QpIndex{3}, QpIndex{4});
  EXPECT_EQ(FrameToken::none().value, ~std::uint64_t{0});
}

TEST(Time, UnitsAndArithmetic) {
  EXPECT_EQ(seconds(2).ns, 2'000'000'000);
  EXPECT_EQ(milliseconds(3), microseconds(3'000));
  EXPECT_EQ(microseconds(1) - nanoseconds(1), nanoseconds(999));
  EXPECT_EQ(nanoseconds(5) * -2, nanoseconds(-10));
  const Time start{100};
  EXPECT_EQ(start + microseconds(1) - start, microseconds(1));
  EXPECT_EQ(start - nanoseconds(100), Time{0});
  EXPECT_LT(start, start + nanoseconds(1));
  EXPECT_LT(start, Time::never());
  EXPECT_TRUE(Time::never().is_never());
  EXPECT_FALSE(start.is_never());
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(4));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 4);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 4);

  const Result<std::string> bad(Error{ENOENT, "no such thing"});
  EXPECT_FALSE(bad.ok());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().code, ENOENT);
  EXPECT_EQ(bad.error().text, "no such thing");
}

TEST(Result, OfNothingIsSuccessUnlessToldOtherwise) {
  EXPECT_TRUE(Result<void>().ok());
  const Result<void> bad(Error{EIO, "broken"});
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, EIO);
}

TEST(CheckDeathTest, SaysWhatBrokeAndCallsTheHookOnce) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto break_it = [] {
    set_crash_hook([](const char* expression, const char*, int) {
      (void)!::write(STDERR_FILENO, "hook:", 5);
      (void)!::write(STDERR_FILENO, expression, 6);
    });
    ROCEMU_CHECK(1 == 2);
  };
  EXPECT_DEATH(break_it(), "invariant broken: 1 == 2 at .*values_test.*\n.*hook:1 == 2");
}

TEST(Check, HoldsForWhatIsTrue) {
  int evaluated = 0;
  ROCEMU_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace rocemu
