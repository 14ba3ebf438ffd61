// Memory regions and windows as the kernel's interface has them: which rights a registration may
// ask for, registering anew, windows, advice. The client's memory is the test's own.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "rocemu/abi/commands.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

constexpr std::uint32_t kLocalWrite = 1 << 0;
constexpr std::uint32_t kRemoteWrite = 1 << 1;
constexpr std::uint32_t kRemoteRead = 1 << 2;
constexpr std::uint32_t kMwBind = 1 << 4;
constexpr std::uint32_t kZeroBased = 1 << 5;
constexpr std::uint32_t kOnDemand = 1 << 6;
constexpr std::uint32_t kHugetlb = 1 << 7;
constexpr std::uint32_t kRelaxedOrdering = 1 << 20;
constexpr std::uint32_t kChangeTranslation = 1, kChangePd = 2, kChangeAccess = 4;

class MemoryCommands : public ::testing::Test {
 protected:
  static constexpr std::size_t kPage = 4096;

  static void SetUpTestSuite() { running_ = std::make_unique<RunningDaemon>(); }
  static void TearDownTestSuite() { running_.reset(); }

  void SetUp() override {
    ASSERT_TRUE(daemon_.becomes_empty());
    client_.open(0);
    client_.get_context();
    pd_ = client_.alloc_pd();
    // Writable, read-only, nothing, writable.
    memory_ =
        ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
    ASSERT_EQ(::mprotect(page(1), kPage, PROT_READ), 0);
    ASSERT_EQ(::munmap(page(2), kPage), 0);
  }
  void TearDown() override {
    client_.close();
    EXPECT_TRUE(daemon_.becomes_empty());
    ::munmap(memory_, 4 * kPage);
  }

  void* page(std::size_t n) const { return static_cast<char*>(memory_) + n * kPage; }
  std::uint64_t at(std::size_t n) const { return reinterpret_cast<std::uint64_t>(page(n)); }

  Client::Outcome reg_mr(std::uint64_t start, std::uint64_t length, std::uint32_t access) {
    const ib_uverbs_reg_mr in{0, start, length, start, pd_, access};
    return client_.plain(IB_USER_VERBS_CMD_REG_MR, in, sizeof(ib_uverbs_reg_mr_resp));
  }
  ib_uverbs_reg_mr_resp registered(std::uint64_t start, std::uint64_t length,
                                   std::uint32_t access) {
    const auto out = reg_mr(start, length, access);
    EXPECT_EQ(out.error, 0);
    return out.as<ib_uverbs_reg_mr_resp>();
  }
  Client::Outcome rereg_mr(std::uint32_t mr, std::uint32_t flags, std::uint64_t start,
                           std::uint64_t length, std::uint32_t pd, std::uint32_t access) {
    const ib_uverbs_rereg_mr in{0, mr, flags, start, length, start, pd, access};
    return client_.plain(IB_USER_VERBS_CMD_REREG_MR, in, sizeof(ib_uverbs_rereg_mr_resp));
  }
  int dereg_mr(std::uint32_t mr) {
    return client_.plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr}, 0).error;
  }
  int dealloc_pd(std::uint32_t pd) {
    return client_.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd}, 0).error;
  }
  Client::Outcome alloc_mw(std::uint32_t pd, std::uint8_t type) {
    ib_uverbs_alloc_mw in{};
    in.pd_handle = pd;
    in.mw_type = type;
    return client_.plain(IB_USER_VERBS_CMD_ALLOC_MW, in, sizeof(ib_uverbs_alloc_mw_resp));
  }
  int dealloc_mw(std::uint32_t mw) {
    return client_.plain(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{mw}, 0).error;
  }
  Client::Outcome advise(std::uint32_t advice, std::uint64_t address, std::uint32_t length,
                         std::uint32_t lkey) {
    abi::AdviseMr in{};
    in.pd_handle = pd_;
    in.advice = advice;
    in.range_count = 1;
    in.ranges[0] = {address, length, lkey};
    return client_.plain(abi::kCommandAdviseMr, in, 8 * abi::kMaxAdvisedRanges);
  }

  static inline std::unique_ptr<RunningDaemon> running_;
  const RunningDaemon& daemon_ = *running_;
  Client client_{daemon_};
  std::uint32_t pd_ = 0;
  void* memory_ = MAP_FAILED;
};

TEST_F(MemoryCommands, RightsThatARegistrationMayAskFor) {
  for (const std::uint32_t access :
       {0u, kLocalWrite, kLocalWrite | kMwBind, kLocalWrite | kZeroBased, kLocalWrite | kHugetlb,
        kLocalWrite | kRelaxedOrdering, kLocalWrite | kOnDemand, kRemoteRead}) {
    EXPECT_EQ(reg_mr(at(0), kPage, access).error, 0) << access;
  }
  EXPECT_EQ(reg_mr(at(0), kPage, kMwBind).error, EINVAL);
  EXPECT_EQ(reg_mr(at(0), kPage, kRemoteWrite).error, EINVAL);
  EXPECT_EQ(reg_mr(at(0), kPage, 1 << 10).error, EOPNOTSUPP);
}

TEST_F(MemoryCommands, OnDemandPagesNeedNotBeThereButMustHaveTheRights) {
  EXPECT_EQ(reg_mr(at(2), 2 * kPage, kLocalWrite).error, EFAULT);
  EXPECT_EQ(reg_mr(at(2), 2 * kPage, kLocalWrite | kOnDemand).error, 0);
  EXPECT_EQ(reg_mr(at(0), 3 * kPage, kOnDemand).error, 0);
  EXPECT_EQ(reg_mr(at(0), 3 * kPage, kLocalWrite | kOnDemand).error, EFAULT);
  EXPECT_EQ(reg_mr(0, ~std::uint64_t{0}, kLocalWrite | kOnDemand).error, EINVAL);  // implicit
}

TEST_F(MemoryCommands, RegisteringAnewKeepsTheKeys) {
  const auto mr = registered(at(0), kPage, kLocalWrite);
  const std::uint32_t other = client_.alloc_pd();
  const auto moved = rereg_mr(mr.mr_handle, kChangeTranslation | kChangePd | kChangeAccess, at(1),
                              kPage, other, kRemoteRead);
  ASSERT_EQ(moved.error, 0);
  EXPECT_EQ(moved.as<ib_uverbs_rereg_mr_resp>().lkey, mr.lkey);
  EXPECT_EQ(moved.as<ib_uverbs_rereg_mr_resp>().rkey, mr.rkey);
  // It holds its new domain and no longer its old one.
  EXPECT_EQ(dealloc_pd(other), EBUSY);
  EXPECT_EQ(dealloc_pd(pd_), 0);
  EXPECT_EQ(dereg_mr(mr.mr_handle), 0);
  EXPECT_EQ(dealloc_pd(other), 0);
}

TEST_F(MemoryCommands, RegisteringAnewThatFailsChangesNothing) {
  const auto mr = registered(at(0), kPage, kLocalWrite | kOnDemand);
  const std::uint32_t h = mr.mr_handle;
  EXPECT_EQ(rereg_mr(h, 0, at(0), kPage, pd_, 0).error, EINVAL);
  EXPECT_EQ(rereg_mr(h, 8, at(0), kPage, pd_, 0).error, EOPNOTSUPP);
  EXPECT_EQ(rereg_mr(h + 1, kChangeAccess, 0, 0, 0, 0).error, EINVAL);
  EXPECT_EQ(rereg_mr(h, kChangePd, 0, 0, pd_ + 1, 0).error, EINVAL);
  EXPECT_EQ(rereg_mr(h, kChangeAccess, 0, 0, 0, kRemoteWrite).error, EINVAL);
  EXPECT_EQ(rereg_mr(h, kChangeAccess, 0, 0, 0, 1 << 10).error, EOPNOTSUPP);
  EXPECT_EQ(rereg_mr(h, kChangeTranslation | kChangeAccess, at(2), kPage, 0, 0).error, EFAULT);
  EXPECT_EQ(rereg_mr(h, kChangeTranslation, at(0), 0, 0, 0).error, EINVAL);
  // The range is still the old one.
  EXPECT_EQ(advise(0, at(0), kPage, mr.lkey).error, 0);
  EXPECT_EQ(advise(0, at(1), 1, mr.lkey).error, EINVAL);
}

TEST_F(MemoryCommands, WindowsComeAndGoAndHoldTheirDomain) {
  const std::uint32_t pd = client_.alloc_pd();
  for (const std::uint8_t type : {std::uint8_t{1}, std::uint8_t{2}}) {
    const auto mw = alloc_mw(pd, type);
    ASSERT_EQ(mw.error, 0);
    EXPECT_NE(mw.as<ib_uverbs_alloc_mw_resp>().rkey, 0u);
    EXPECT_EQ(dealloc_pd(pd), EBUSY);
    EXPECT_EQ(dealloc_mw(mw.as<ib_uverbs_alloc_mw_resp>().mw_handle), 0);
    EXPECT_EQ(dealloc_mw(mw.as<ib_uverbs_alloc_mw_resp>().mw_handle), EINVAL);
  }
  EXPECT_EQ(dealloc_pd(pd), 0);
  EXPECT_EQ(alloc_mw(pd, 1).error, EINVAL);
  EXPECT_EQ(alloc_mw(pd_, 0).error, EINVAL);
  EXPECT_EQ(alloc_mw(pd_, 3).error, EINVAL);
  EXPECT_EQ(alloc_mw(pd_, 1).error, 0);  // goes with the context
}

TEST_F(MemoryCommands, WindowsAreAdvertised) {
  const auto out = client_.plain(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{},
                                 sizeof(ib_uverbs_query_device_resp));
  const auto r = out.as<ib_uverbs_query_device_resp>();
  EXPECT_GT(r.max_mw, 0u);
  constexpr std::uint32_t kWindow = 1 << 17, kExtensions = 1 << 21, kType2B = 1 << 24;
  EXPECT_EQ(r.device_cap_flags & (kWindow | kExtensions | kType2B),
            kWindow | kExtensions | kType2B);
}

TEST_F(MemoryCommands, AdviceIsForRegionsOnDemandWithTheRights) {
  const auto plain = registered(at(0), kPage, kLocalWrite);
  const auto mr = registered(at(0), 2 * kPage, kOnDemand);
  ib_uverbs_reg_mr in{0, at(0), kPage, 0x7000'0000, pd_, kLocalWrite | kOnDemand};
  const auto shifted = client_.plain(IB_USER_VERBS_CMD_REG_MR, in, sizeof(ib_uverbs_reg_mr_resp))
                           .as<ib_uverbs_reg_mr_resp>();
  EXPECT_EQ(advise(0, at(0), 2 * kPage, mr.lkey).as<std::uint64_t>(), at(0));
  EXPECT_EQ(advise(2, at(0), 1, mr.lkey).error, 0);
  EXPECT_EQ(advise(1, 0x7000'0010, 16, shifted.lkey).as<std::uint64_t>(), at(0) + 16);
  EXPECT_EQ(advise(1, at(0), 1, mr.lkey).error, EPERM);
  EXPECT_EQ(advise(0, at(0), 1, plain.lkey).error, EINVAL);
  EXPECT_EQ(advise(0, at(0), 2 * kPage + 1, mr.lkey).error, EINVAL);
  EXPECT_EQ(advise(0, at(0), 1, mr.lkey + 1).error, EINVAL);
  EXPECT_EQ(advise(3, at(0), 1, mr.lkey).error, EOPNOTSUPP);
  pd_ = client_.alloc_pd();
  EXPECT_EQ(advise(0, at(0), 1, mr.lkey).error, EPERM);
  abi::AdviseMr many{};
  many.pd_handle = pd_;
  many.range_count = abi::kMaxAdvisedRanges + 1;
  EXPECT_EQ(client_.plain(abi::kCommandAdviseMr, many, 8 * abi::kMaxAdvisedRanges).error, EINVAL);
}

}  // namespace
}  // namespace rocemu::control::testing
