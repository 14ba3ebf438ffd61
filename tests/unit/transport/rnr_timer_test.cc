// The RNR timer table against its construction, and the ACK timeout against its formula.
#include "dataplane/transport/rnr_timer.h"

#include <gtest/gtest.h>

namespace rocemu::transport {
namespace {

TEST(RnrTimer, FieldZeroIsTheLongest) {
  EXPECT_EQ(rnr_timer(0).ns, 655'360'000);
  for (std::uint8_t field = 1; field < 32; ++field) EXPECT_LT(rnr_timer(field), rnr_timer(0));
}

TEST(RnrTimer, FirstFieldsCountTensOfMicroseconds) {
  for (std::uint8_t field = 1; field <= 4; ++field) {
    EXPECT_EQ(rnr_timer(field).ns, field * 10'000);
  }
}

TEST(RnrTimer, FromThereOnTwoStepsDoubleAndTheStepBetweenIsHalfAsMuchAgain) {
  // 40, 60, 80, 120, ... us: table 45 has no other rule, 61.44 ms included.
  for (std::uint8_t field = 4; field < 30; ++field) {
    EXPECT_EQ(rnr_timer(static_cast<std::uint8_t>(field + 2)).ns, 2 * rnr_timer(field).ns);
  }
  for (std::uint8_t field = 4; field < 31; field = static_cast<std::uint8_t>(field + 2)) {
    EXPECT_EQ(2 * rnr_timer(static_cast<std::uint8_t>(field + 1)).ns, 3 * rnr_timer(field).ns);
  }
  EXPECT_EQ(rnr_timer(25).ns, 61'440'000);
  EXPECT_EQ(rnr_timer(31).ns, 491'520'000);
}

TEST(RnrTimer, OnlyFiveBitsCount) { EXPECT_EQ(rnr_timer(0xe0 | 14), rnr_timer(14)); }

TEST(AckTimeout, DoublesFromFourMicroseconds) {
  std::int64_t expected = 4096;
  for (std::uint8_t field = 0; field < 32; ++field, expected *= 2) {
    EXPECT_EQ(ack_timeout(field).ns, expected);
  }
}

}  // namespace
}  // namespace rocemu::transport
