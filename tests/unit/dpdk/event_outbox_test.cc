// Completion events into pipes that are empty, full, shared and gone.
#include "dataplane/dpdk/event_outbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace rocemu::dpdk {
namespace {

constexpr CqIndex kFirst{3};
constexpr CqIndex kSecond{900};

struct OutboxTest : testing::Test {
  OutboxTest() {
    ::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    capacity = static_cast<std::size_t>(::fcntl(ends[1], F_SETPIPE_SZ, 4096)) / 8;
    outbox.bind(kFirst, {ends[1], 11});
  }
  ~OutboxTest() override {
    for (const int fd : ends) {
      if (fd >= 0) ::close(fd);
    }
  }

  void raise(CqIndex cq, std::size_t count = 1) {
    for (std::size_t i = 0; i < count; ++i) outbox.on_completion_event(cq);
  }
  std::uint64_t deliver() { return outbox.deliver(now); }
  std::vector<std::uint64_t> read_all() {
    std::vector<std::uint64_t> cookies;
    std::uint64_t cookie;
    while (::read(ends[0], &cookie, sizeof cookie) == 8) cookies.push_back(cookie);
    return cookies;
  }
  /// Turns with time passing and a reader that reads.
  std::vector<std::uint64_t> read_to_the_end() {
    std::vector<std::uint64_t> cookies;
    for (int i = 0; i < 10'000; ++i) {
      const auto more = read_all();
      cookies.insert(cookies.end(), more.begin(), more.end());
      if (outbox.next_retry().is_never() && more.empty()) break;
      now = now + EventOutbox::kRetryInterval;
      deliver();
    }
    return cookies;
  }

  int ends[2] = {-1, -1};
  std::size_t capacity = 0;
  EventOutbox outbox;
  Time now{1'000'000'000};
};

TEST_F(OutboxTest, NothingRaisedNothingWritten) {
  EXPECT_FALSE(outbox.has_due());
  EXPECT_EQ(deliver(), 0u);
  EXPECT_TRUE(read_all().empty());
}

TEST_F(OutboxTest, AnEventIsItsCookie) {
  raise(kFirst);
  EXPECT_TRUE(outbox.has_due());
  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(read_all(), std::vector<std::uint64_t>{11});
  EXPECT_EQ(outbox.unbind(kFirst), 1u);
}

TEST_F(OutboxTest, QueuesWithoutChannelRaiseNothing) {
  outbox.bind(kSecond, {-1, 5});
  raise(kSecond);
  raise(CqIndex{77'777});  // never bound
  EXPECT_EQ(deliver(), 0u);
  EXPECT_EQ(outbox.unbind(kSecond), 0u);
}

TEST_F(OutboxTest, AFullPipeKeepsEveryEvent) {
  const std::size_t count = capacity + 2000;
  raise(kFirst, count);
  deliver();
  EXPECT_EQ(outbox.next_retry(), now + EventOutbox::kRetryInterval);
  EXPECT_EQ(read_to_the_end().size(), count);
  EXPECT_EQ(outbox.unbind(kFirst), count);
}

TEST_F(OutboxTest, EventsBehindAFullPipeDoNotOvertake) {
  outbox.bind(kSecond, {ends[1], 22});
  raise(kFirst, capacity + 1);
  deliver();
  ASSERT_EQ(read_all().size(), capacity);
  raise(kSecond);
  deliver();
  EXPECT_EQ(read_to_the_end(), (std::vector<std::uint64_t>{11, 22}));
}

TEST_F(OutboxTest, AFullPipeIsTriedOnceAnInterval) {
  raise(kFirst, capacity + 1);
  deliver();
  raise(kFirst, 100'000);
  EXPECT_EQ(deliver(), 0u) << "known to be full";
  now = now + EventOutbox::kRetryInterval;
  EXPECT_EQ(deliver(), 1u);
  EXPECT_EQ(deliver(), 0u);
}

TEST_F(OutboxTest, ARetryIsBoundedAndGoesOnAtOnce) {
  raise(kFirst, capacity + EventOutbox::kRetryWrites + 10);
  deliver();
  ASSERT_EQ(read_all().size(), capacity);
  now = now + EventOutbox::kRetryInterval;
  EXPECT_EQ(deliver(), EventOutbox::kRetryWrites);
  EXPECT_LE(outbox.next_retry(), now);
  EXPECT_EQ(deliver(), 10u);
  EXPECT_TRUE(outbox.next_retry().is_never());
}

TEST_F(OutboxTest, AFullPipeHoldsUpNoOther) {
  int other[2];
  ASSERT_EQ(::pipe2(other, O_NONBLOCK), 0);
  outbox.bind(kSecond, {other[1], 22});
  raise(kFirst, capacity + 1);
  raise(kSecond);
  deliver();
  std::uint64_t cookie = 0;
  EXPECT_EQ(::read(other[0], &cookie, sizeof cookie), 8);
  EXPECT_EQ(cookie, 22u);
  ::close(other[0]);
  ::close(other[1]);
}

TEST_F(OutboxTest, UnbindForgetsWhatWaits) {
  outbox.bind(kSecond, {ends[1], 22});
  raise(kFirst, capacity + 5);
  raise(kSecond, 5);
  deliver();
  raise(kFirst, 3);
  EXPECT_EQ(outbox.unbind(kFirst), capacity);
  const auto cookies = read_to_the_end();
  EXPECT_EQ(std::ranges::count(cookies, 11u), static_cast<std::ptrdiff_t>(capacity));
  EXPECT_EQ(std::ranges::count(cookies, 22u), 5);
  EXPECT_EQ(outbox.unbind(kSecond), 5u);
  EXPECT_TRUE(outbox.next_retry().is_never());
}

TEST_F(OutboxTest, AReaderThatIsGoneLosesItsEvents) {
  raise(kFirst, capacity + 5);
  deliver();
  ::close(std::exchange(ends[0], -1));
  raise(kFirst);
  now = now + EventOutbox::kRetryInterval;
  deliver();
  EXPECT_TRUE(outbox.next_retry().is_never());
  raise(kFirst);
  deliver();
  EXPECT_EQ(outbox.unbind(kFirst), capacity);
}

TEST_F(OutboxTest, AsynchronousEventsKeepTheirOrder) {
  outbox.on_async_event({.type = engine::AsyncEventType::kQpFatal, .qp = QpNum{1}});
  outbox.on_async_event({.type = engine::AsyncEventType::kCqError, .cq = kFirst});
  ASSERT_EQ(outbox.async_events().size(), 2u);
  EXPECT_EQ(outbox.async_events()[1].cq, kFirst);
}

}  // namespace
}  // namespace rocemu::dpdk
