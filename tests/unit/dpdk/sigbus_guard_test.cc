// Memory that is taken away under a mapping: inside a guarded range it reads as zeros and names its
// owner; elsewhere it is fatal as ever.
#include "dataplane/dpdk/sigbus_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace rocemu::dpdk {
namespace {

constexpr std::size_t kBytes = 4 * 4096;

struct Mapping {
  Mapping() {
    fd = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(fd, kBytes), 0);
    auto* p =
        static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    std::memset(p, 0x55, kBytes);
    bytes = {p, kBytes};
  }
  ~Mapping() {
    ::munmap(bytes.data(), bytes.size());
    ::close(fd);
  }
  void take_away() { EXPECT_EQ(::ftruncate(fd, 4096), 0); }
  /// A load that the compiler neither guesses nor drops.
  std::byte read(std::size_t offset) {
    return static_cast<volatile std::byte*>(bytes.data())[offset];
  }

  int fd = -1;
  std::span<std::byte> bytes;
};

TEST(SigbusGuard, AFaultInAGuardedRangeReadsZeros) {
  Mapping m;
  ASSERT_TRUE(guard_range(m.bytes, 41));
  const auto before = fault_count();
  m.take_away();
  EXPECT_EQ(m.read(0), std::byte{0x55});
  EXPECT_FALSE(is_faulted(41));
  EXPECT_EQ(m.read(kBytes - 1), std::byte{0});
  EXPECT_EQ(fault_count(), before + 1);
  EXPECT_TRUE(is_faulted(41));
  EXPECT_FALSE(is_faulted(42));
  m.bytes[kBytes - 1] = std::byte{9};
  EXPECT_EQ(m.read(kBytes - 1), std::byte{9}) << "the page in its place takes writes";
  unguard_ranges(41);
  EXPECT_FALSE(is_faulted(41));
}

TEST(SigbusGuard, ANewOwnerStartsWithoutFault) {
  Mapping m;
  ASSERT_TRUE(guard_range(m.bytes, 43));
  m.take_away();
  (void)m.read(2 * 4096);
  ASSERT_TRUE(is_faulted(43));
  unguard_ranges(43);
  Mapping other;
  ASSERT_TRUE(guard_range(other.bytes, 43));
  EXPECT_FALSE(is_faulted(43));
  unguard_ranges(43);
}

TEST(SigbusGuardDeathTest, AFaultElsewhereIsFatal) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Mapping guarded;
        Mapping m;
        (void)guard_range(guarded.bytes, 44);
        m.take_away();
        (void)m.read(kBytes - 1);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(SigbusGuardDeathTest, AFaultAfterUnguardIsFatal) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Mapping m;
        (void)guard_range(m.bytes, 45);
        unguard_ranges(45);
        m.take_away();
        (void)m.read(kBytes - 1);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace rocemu::dpdk
