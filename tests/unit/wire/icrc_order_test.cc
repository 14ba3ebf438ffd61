// The copying kernels store the last eight bytes (of shorter copies: the last byte) after all
// others: an application that polls on its buffer's last byte must see the whole. Made visible by a
// page that cannot be written yet: the tail's store faults, and the handler looks at what stands
// before it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "dataplane/wire/icrc.h"
#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

// What the fault handler needs; written before a copy, read in its fault.
struct Watch {
  std::byte* boundary = nullptr;  // first byte of the closed page
  std::size_t page = 0;
  const std::byte* expected = nullptr;  // what must stand before it by then
  std::size_t expected_bytes = 0;
  int faults = 0;
  bool is_complete = false;
};
Watch g_watch;

void on_fault(int, siginfo_t*, void*) {
  ++g_watch.faults;
  g_watch.is_complete = std::memcmp(g_watch.boundary - g_watch.expected_bytes, g_watch.expected,
                                    g_watch.expected_bytes) == 0;
  ::mprotect(g_watch.boundary, g_watch.page, PROT_READ | PROT_WRITE);
}

class CopyOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* p =
        ::mmap(nullptr, 4 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    base_ = static_cast<std::byte*>(p);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &old_action_), 0);
  }
  void TearDown() override {
    ::sigaction(SIGSEGV, &old_action_, nullptr);
    ::munmap(base_, 4 * page_);
  }

  std::size_t page_ = 0;
  std::byte* base_ = nullptr;
  struct sigaction old_action_ {};
};

TEST_F(CopyOrder, TheTailIsStoredLast) {
  Prng prng(21);
  for (const IcrcKernel& kernel : icrc_kernels()) {
    if (!kernel.is_supported()) continue;
    for (std::size_t n = 1; n <= 4096; n += n < 600 ? 1 : 101) {
      const std::size_t tail = n < 8 ? 1 : 8;
      const test::Frame data = test::random_bytes(n, prng);
      std::byte* boundary = base_ + 3 * page_;
      std::byte* to = boundary - (n - tail);
      std::memset(base_, 0, 3 * page_);
      ASSERT_EQ(::mprotect(boundary, page_, PROT_READ), 0);
      g_watch = {boundary, page_, data.data(), n - tail, 0, false};
      (void)kernel.copy(0, to, data.data(), n);
      ASSERT_EQ(g_watch.faults, 1) << kernel.name << " length " << n;
      ASSERT_TRUE(g_watch.is_complete) << kernel.name << " length " << n;
      ASSERT_EQ(std::memcmp(to, data.data(), n), 0) << kernel.name << " length " << n;
    }
  }
}

}  // namespace
}  // namespace rocemu::wire
