// Shared receive queues by uverbs commands: sizes, limits and their errnos, who uses what, resizing
// with receives posted, events on their way to the program.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

constexpr std::size_t kSrqOut = sizeof(ib_uverbs_create_srq_resp) + sizeof(rxe_create_srq_resp);
constexpr std::size_t kQpOut = sizeof(ib_uverbs_create_qp_resp) + sizeof(rxe_create_qp_resp);
constexpr std::uint32_t kMaxWr = 1;
constexpr std::uint32_t kLimit = 2;
constexpr std::uint32_t kMostWr = 65535;

// MODIFY_SRQ with the driver's part behind it.
struct ModifySrq {
  std::uint32_t handle;
  std::uint32_t mask;
  std::uint32_t max_wr;
  std::uint32_t limit;
  std::uint64_t mmap_info_address;
};
static_assert(sizeof(ModifySrq) == sizeof(ib_uverbs_modify_srq) + sizeof(rxe_modify_srq_cmd));

class SharedReceive : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { running_ = std::make_unique<RunningDaemon>(); }
  static void TearDownTestSuite() { running_.reset(); }

  void SetUp() override {
    ASSERT_TRUE(daemon_.becomes_empty());
    client_.open(0);
    client_.get_context();
    pd_ = client_.alloc_pd();
    cq_ = client_.create_cq(10, -1, 1).cq_handle;
  }

  Client::Outcome create(std::uint32_t pd, std::uint32_t max_wr, std::uint32_t max_sge) {
    ib_uverbs_create_srq in;
    std::memset(&in, 0, sizeof in);
    in.user_handle = 0x5051;
    in.pd_handle = pd;
    in.max_wr = max_wr;
    in.max_sge = max_sge;
    return client_.plain(IB_USER_VERBS_CMD_CREATE_SRQ, in, kSrqOut);
  }
  std::uint32_t create() {
    const auto out = create(pd_, 10, 2);
    EXPECT_EQ(out.error, 0);
    return out.as<ib_uverbs_create_srq_resp>().srq_handle;
  }
  Client::Outcome modify(std::uint32_t srq, std::uint32_t mask, std::uint32_t max_wr,
                         std::uint32_t limit) {
    return client_.plain(IB_USER_VERBS_CMD_MODIFY_SRQ,
                         ModifySrq{srq, mask, max_wr, limit, 0x1234'5678'9abc}, 0);
  }
  ib_uverbs_query_srq_resp query(std::uint32_t srq) {
    const ib_uverbs_query_srq in{0, srq, 0};
    const auto out =
        client_.plain(IB_USER_VERBS_CMD_QUERY_SRQ, in, sizeof(ib_uverbs_query_srq_resp));
    EXPECT_EQ(out.error, 0);
    return out.as<ib_uverbs_query_srq_resp>();
  }
  Client::Outcome destroy(std::uint32_t srq) {
    return client_.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, srq, 0}, 4);
  }
  Client::Outcome create_qp(std::uint32_t srq) {
    ib_uverbs_create_qp in;
    std::memset(&in, 0, sizeof in);
    in.pd_handle = pd_;
    in.send_cq_handle = in.recv_cq_handle = cq_;
    in.srq_handle = srq;
    in.is_srq = 1;
    in.max_send_wr = 4;
    in.max_recv_wr = in.max_recv_sge = ~0u;  // of no meaning here
    in.max_send_sge = 1;
    in.qp_type = 2;
    return client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in, kQpOut);
  }
  std::byte* map(const mminfo& info) {
    void* at = ::mmap(nullptr, info.size, PROT_READ | PROT_WRITE, MAP_SHARED,
                      client_.context_fd.get(), static_cast<off_t>(info.offset));
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<std::byte*>(at);
  }
  // What the program reads from its event descriptor.
  ib_uverbs_async_event_desc next_event() {
    ib_uverbs_async_event_desc event{};
    EXPECT_EQ(::read(client_.async_fd.get(), &event, sizeof event),
              static_cast<ssize_t>(sizeof event));
    return event;
  }

  static inline std::unique_ptr<RunningDaemon> running_;
  const RunningDaemon& daemon_ = *running_;
  Client client_{daemon_};
  std::uint32_t pd_ = 0;
  std::uint32_t cq_ = 0;
};

TEST_F(SharedReceive, SizesAreRoundedUpAndHaveLimits) {
  EXPECT_EQ(create(pd_, 0, 1).error, EINVAL);
  EXPECT_EQ(create(pd_, kMostWr + 1, 1).error, EINVAL);
  EXPECT_EQ(create(pd_, 1, 33).error, EINVAL);
  EXPECT_EQ(create(pd_ + 1, 1, 1).error, EINVAL);
  const auto made = create(pd_, 10, 0);
  ASSERT_EQ(made.error, 0);
  EXPECT_EQ(made.as<ib_uverbs_create_srq_resp>().max_wr, 15u);
  EXPECT_EQ(made.as<ib_uverbs_create_srq_resp>().max_sge, 1u);
  const auto most = create(pd_, kMostWr, 32);
  ASSERT_EQ(most.error, 0);
  const auto seen = query(most.as<ib_uverbs_create_srq_resp>().srq_handle);
  EXPECT_EQ(seen.max_wr, kMostWr);
  EXPECT_EQ(seen.max_sge, 32u);
  EXPECT_EQ(seen.srq_limit, 0u);
}

TEST_F(SharedReceive, IsBusyWhileAQueuePairUsesItAndKeepsItsDomainBusy) {
  const std::uint32_t srq = create();
  const auto qp = create_qp(srq);
  ASSERT_EQ(qp.error, 0);
  EXPECT_EQ(qp.as<ib_uverbs_create_qp_resp>().max_recv_wr, 0u);
  EXPECT_EQ(qp.as<rxe_create_qp_resp>(sizeof(ib_uverbs_create_qp_resp)).rq_mi.size, 0u);
  EXPECT_EQ(destroy(srq).error, EBUSY);
  const std::uint32_t handle = qp.as<ib_uverbs_create_qp_resp>().qp_handle;
  EXPECT_EQ(
      client_.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, handle, 0}, 8).error, 0);
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd_}, 0).error, EBUSY);
  EXPECT_EQ(destroy(srq).error, 0);
  EXPECT_EQ(destroy(srq).error, EINVAL);
  EXPECT_EQ(create_qp(srq).error, EINVAL);
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd_}, 0).error, 0);
}

TEST_F(SharedReceive, ModifyRefusesWhatTheKernelRefuses) {
  const std::uint32_t srq = create();  // 15 usable
  EXPECT_EQ(modify(srq + 1, kLimit, 0, 1).error, EINVAL);
  EXPECT_EQ(modify(srq, 4, 0, 0).error, EINVAL);
  EXPECT_EQ(modify(srq, kMaxWr, 0, 0).error, EINVAL);
  EXPECT_EQ(modify(srq, kMaxWr, kMostWr + 1, 0).error, EINVAL);
  EXPECT_EQ(modify(srq, kLimit, 0, 16).error, EINVAL);
  EXPECT_EQ(modify(srq, kMaxWr | kLimit, 8, 9).error, EINVAL);
  // Without the place for the new mapping.
  EXPECT_EQ(
      client_
          .plain(IB_USER_VERBS_CMD_MODIFY_SRQ, std::array<std::uint32_t, 4>{srq, kMaxWr, 20, 0}, 0)
          .error,
      EINVAL);
  EXPECT_EQ(query(srq).max_wr, 15u);
}

TEST_F(SharedReceive, ResizingKeepsWhatIsPosted) {
  const auto made = create(pd_, 3, 1);
  ASSERT_EQ(made.error, 0);
  const std::uint32_t srq = made.as<ib_uverbs_create_srq_resp>().srq_handle;
  std::byte* ring = map(made.as<rxe_create_srq_resp>(sizeof(ib_uverbs_create_srq_resp)).mi);
  const std::size_t stride = std::size_t{1} << load<std::uint32_t>(ring);
  // Two posted, around the end of the ring.
  store(ring + rxe::kQueueConsumerIndex, std::uint32_t{3});
  store(ring + rxe::kQueueProducerIndex, std::uint32_t{1});
  store(ring + rxe::kQueueData + 3 * stride, std::uint64_t{71});
  store(ring + rxe::kQueueData, std::uint64_t{72});
  EXPECT_EQ(modify(srq, kMaxWr, 1, 0).error, EINVAL);
  const auto resized = modify(srq, kMaxWr, 20, 0);
  ASSERT_EQ(resized.error, 0);
  ASSERT_EQ(resized.patches.size(), 1u);
  EXPECT_EQ(resized.patches[0].address, 0x1234'5678'9abcu);
  std::byte* larger = map(load<mminfo>(resized.patches[0].bytes.data()));
  EXPECT_EQ(load<std::uint32_t>(larger + rxe::kQueueIndexMask), 31u);
  EXPECT_EQ(load<std::uint32_t>(larger + rxe::kQueueProducerIndex), 2u);
  EXPECT_EQ(load<std::uint32_t>(larger + rxe::kQueueConsumerIndex), 0u);
  EXPECT_EQ(load<std::uint64_t>(larger + rxe::kQueueData), 71u);
  EXPECT_EQ(load<std::uint64_t>(larger + rxe::kQueueData + stride), 72u);
  EXPECT_EQ(query(srq).max_wr, 31u);
}

TEST_F(SharedReceive, TheLimitEventNamesTheSrqAndIsCountedWhenRead) {
  const std::uint32_t first = create();
  const std::uint32_t second = create();
  ASSERT_EQ(modify(first, kLimit, 0, 5).error, 0);  // nothing is posted: at once
  const auto event = next_event();
  EXPECT_EQ(event.element, 0x5051u);
  EXPECT_EQ(event.event_type, 15u);  // IBV_EVENT_SRQ_LIMIT_REACHED
  EXPECT_EQ(query(first).srq_limit, 0u);
  EXPECT_EQ(destroy(first).as<ib_uverbs_destroy_srq_resp>().events_reported, 1u);
  EXPECT_EQ(destroy(second).as<ib_uverbs_destroy_srq_resp>().events_reported, 0u);
}

TEST_F(SharedReceive, AQueuePairInErrorTellsItsLastWqe) {
  const auto qp = create_qp(create());
  ASSERT_EQ(qp.error, 0);
  ib_uverbs_modify_qp in;
  std::memset(&in, 0, sizeof in);
  in.qp_handle = qp.as<ib_uverbs_create_qp_resp>().qp_handle;
  in.attr_mask = 1;
  in.qp_state = 6;
  EXPECT_EQ(client_.modify_qp(in), 0);
  EXPECT_EQ(next_event().event_type, 16u);  // IBV_EVENT_QP_LAST_WQE_REACHED
}

TEST_F(SharedReceive, ClosingFreesAllOfThem) {
  for (int i = 0; i < 100; ++i) ASSERT_EQ(create_qp(create()).error, 0);
  EXPECT_EQ(daemon_.objects(0)["srqs"], 100);
  client_.close();
  EXPECT_TRUE(daemon_.becomes_empty());
}

}  // namespace
}  // namespace rocemu::control::testing
