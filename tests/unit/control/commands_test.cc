// The uverbs commands against a real daemon: lengths, handles, busy objects, rings, and what a
// command that waits for a neighbour does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>

#include "dataplane/transport/qp_attr.h"
#include "rocemu/abi/commands.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

constexpr std::size_t kCqOut = sizeof(ib_uverbs_create_cq_resp) + sizeof(rxe_create_cq_resp);
constexpr std::size_t kQpOut = sizeof(ib_uverbs_create_qp_resp) + sizeof(rxe_create_qp_resp);

// One daemon serves the tests of a suite: making one takes a while under the sanitizers.
class Commands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { running_ = std::make_unique<RunningDaemon>(); }
  static void TearDownTestSuite() { running_.reset(); }

  void SetUp() override {
    ASSERT_TRUE(daemon_.becomes_empty());
    client_.open(0);
    client_.get_context();
  }

  template <typename T>
  int destroy(std::uint32_t number, const T& core, std::size_t out = 0) {
    return client_.plain(number, core, out).error;
  }
  int dealloc_pd(std::uint32_t pd) {
    return destroy(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd});
  }
  int destroy_cq(std::uint32_t cq) {
    return destroy(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, cq, 0},
                   sizeof(ib_uverbs_destroy_cq_resp));
  }
  int destroy_qp(std::uint32_t qp) {
    return destroy(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, 8);
  }
  Client::Outcome reg_mr(std::uint32_t pd, std::uint64_t start, std::uint64_t length,
                         std::uint32_t access) {
    const ib_uverbs_reg_mr in{0, start, length, start, pd, access};
    return client_.plain(IB_USER_VERBS_CMD_REG_MR, in, sizeof(ib_uverbs_reg_mr_resp));
  }

  static inline std::unique_ptr<RunningDaemon> running_;
  const RunningDaemon& daemon_ = *running_;
  Client client_{daemon_};
};

struct CommandCase {
  std::uint32_t number;
  std::size_t core_bytes;
  std::size_t out_bytes;
  bool is_extended;
};

constexpr CommandCase kCommandCases[] = {
    {IB_USER_VERBS_CMD_GET_CONTEXT, sizeof(ib_uverbs_get_context), 8, false},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, sizeof(ib_uverbs_query_device),
     sizeof(ib_uverbs_query_device_resp), false},
    {IB_USER_VERBS_CMD_QUERY_PORT, sizeof(ib_uverbs_query_port), sizeof(ib_uverbs_query_port_resp),
     false},
    {IB_USER_VERBS_CMD_ALLOC_PD, sizeof(ib_uverbs_alloc_pd), sizeof(ib_uverbs_alloc_pd_resp),
     false},
    {IB_USER_VERBS_CMD_DEALLOC_PD, sizeof(ib_uverbs_dealloc_pd), 0, false},
    {IB_USER_VERBS_CMD_CREATE_AH, sizeof(ib_uverbs_create_ah), 12, false},
    {IB_USER_VERBS_CMD_DESTROY_AH, sizeof(ib_uverbs_destroy_ah), 0, false},
    {IB_USER_VERBS_CMD_ATTACH_MCAST, sizeof(ib_uverbs_attach_mcast), 0, false},
    {IB_USER_VERBS_CMD_DETACH_MCAST, sizeof(ib_uverbs_detach_mcast), 0, false},
    {IB_USER_VERBS_CMD_REG_MR, sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp), false},
    {IB_USER_VERBS_CMD_DEREG_MR, sizeof(ib_uverbs_dereg_mr), 0, false},
    {IB_USER_VERBS_CMD_REREG_MR, sizeof(ib_uverbs_rereg_mr), sizeof(ib_uverbs_rereg_mr_resp),
     false},
    {IB_USER_VERBS_CMD_ALLOC_MW, sizeof(ib_uverbs_alloc_mw), sizeof(ib_uverbs_alloc_mw_resp),
     false},
    {IB_USER_VERBS_CMD_DEALLOC_MW, sizeof(ib_uverbs_dealloc_mw), 0, false},
    {abi::kCommandAdviseMr, sizeof(abi::AdviseMr), 8 * abi::kMaxAdvisedRanges, false},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, sizeof(ib_uverbs_create_comp_channel), 4, false},
    {IB_USER_VERBS_CMD_CREATE_CQ, sizeof(ib_uverbs_create_cq), kCqOut, false},
    {IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(ib_uverbs_resize_cq), 24, false},
    {IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, sizeof(ib_uverbs_req_notify_cq), 0, false},
    {IB_USER_VERBS_CMD_DESTROY_CQ, sizeof(ib_uverbs_destroy_cq), 8, false},
    {IB_USER_VERBS_CMD_CREATE_QP, sizeof(ib_uverbs_create_qp), kQpOut, false},
    {IB_USER_VERBS_CMD_QUERY_QP, sizeof(ib_uverbs_query_qp), sizeof(ib_uverbs_query_qp_resp),
     false},
    {IB_USER_VERBS_CMD_MODIFY_QP, sizeof(ib_uverbs_modify_qp), 0, false},
    {abi::kCommandDropCompletions, sizeof(abi::DropCompletions), 0, false},
    {IB_USER_VERBS_CMD_DESTROY_QP, sizeof(ib_uverbs_destroy_qp), 8, false},
    {IB_USER_VERBS_CMD_POST_SEND, sizeof(ib_uverbs_post_send), 0, false},
    {IB_USER_VERBS_CMD_CREATE_SRQ, sizeof(ib_uverbs_create_srq), 16, false},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, sizeof(ib_uverbs_modify_srq), 0, false},
    {IB_USER_VERBS_CMD_QUERY_SRQ, sizeof(ib_uverbs_query_srq), 16, false},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, sizeof(ib_uverbs_destroy_srq), 4, false},
    {IB_USER_VERBS_EX_CMD_QUERY_DEVICE, sizeof(ib_uverbs_ex_query_device),
     sizeof(ib_uverbs_ex_query_device_resp), true},
    {IB_USER_VERBS_EX_CMD_CREATE_CQ, sizeof(ib_uverbs_ex_create_cq),
     sizeof(ib_uverbs_ex_create_cq_resp), true},
    {IB_USER_VERBS_EX_CMD_CREATE_QP, sizeof(ib_uverbs_ex_create_qp),
     sizeof(ib_uverbs_ex_create_qp_resp), true},
    {IB_USER_VERBS_EX_CMD_MODIFY_QP, sizeof(ib_uverbs_ex_modify_qp),
     sizeof(ib_uverbs_ex_modify_qp_resp), true},
};

// Whatever a length says, the command fails, and the daemon goes on: its handlers read the bytes
// out of an exact copy, which the sanitizer watches.
TEST_F(Commands, EveryCommandAtEveryTruncatedLengthIsAnError) {
  for (const CommandCase& c : kCommandCases) {
    const std::vector<std::byte> core((c.core_bytes + 7) / 8 * 8, std::byte{0xff});
    const auto whole = c.is_extended
                           ? Client::frame_extended(c.number, core, c.out_bytes / 8 * 8, 0)
                           : Client::frame_plain(c.number, core, c.out_bytes);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      // The length that the header states: first the whole one, then one that matches the bytes.
      auto bytes = std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<long>(length));
      EXPECT_NE(client_.command(bytes).error, 0) << c.number << " at " << length;
      if (length % 4 != 0 || length < sizeof(ib_uverbs_cmd_hdr)) continue;
      if (length >= sizeof(ib_uverbs_cmd_hdr) + c.core_bytes) continue;
      store(bytes.data() + offsetof(ib_uverbs_cmd_hdr, in_words),
            static_cast<std::uint16_t>(length / 4));
      EXPECT_NE(client_.command(bytes).error, 0) << c.number << " stated at " << length;
    }
  }
  EXPECT_EQ(dealloc_pd(client_.alloc_pd()), 0);
}

TEST_F(Commands, ResponsesWithoutRoomAreRefused) {
  for (const CommandCase& c : kCommandCases) {
    if (c.out_bytes == 0 || c.is_extended) continue;
    const std::vector<std::byte> core(c.core_bytes, std::byte{0xff});
    EXPECT_NE(client_.command(Client::frame_plain(c.number, core, 0)).error, 0) << c.number;
  }
}

TEST_F(Commands, HandlesThatNameNothingAreInvalid) {
  for (const std::uint32_t handle : {0u, 1u, 0xff'ffffu, 0xffff'ffffu}) {
    EXPECT_EQ(dealloc_pd(handle), EINVAL);
    EXPECT_EQ(destroy_cq(handle), EINVAL);
    EXPECT_EQ(destroy_qp(handle), EINVAL);
    EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{handle}), EINVAL);
    EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{handle}), EINVAL);
    EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{handle}), EINVAL);
    EXPECT_EQ(destroy(IB_USER_VERBS_CMD_RESIZE_CQ, ib_uverbs_resize_cq{0, handle, 5}, 24), EINVAL);
    EXPECT_EQ(client_.to_init(handle), EINVAL);
  }
}

TEST_F(Commands, ObjectsInUseAreBusyAndGoInOrder) {
  const std::uint32_t pd = client_.alloc_pd();
  const std::uint32_t cq = client_.create_cq(10, -1, 1).cq_handle;
  const std::uint32_t qp = client_.create_qp(pd, cq).qp_handle;
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  EXPECT_EQ(destroy_cq(cq), EBUSY);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(destroy_qp(qp), EINVAL);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(dealloc_pd(pd), 0);
  client_.close();
  EXPECT_TRUE(daemon_.becomes_empty());
}

TEST_F(Commands, ClosingFreesEverything) {
  const std::uint32_t pd = client_.alloc_pd();
  const std::uint32_t cq = client_.create_cq(10, -1, 1).cq_handle;
  for (int i = 0; i < 600; ++i) (void)client_.create_qp(pd, cq);
  std::vector<char> memory(8192);
  EXPECT_EQ(reg_mr(pd, reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 1).error, 0);
  const auto objects = daemon_.objects(0);
  EXPECT_EQ(objects["qps"], 600);
  EXPECT_EQ(objects["mrs"], 1);
  EXPECT_EQ(objects["contexts"], 1);
  client_.close();
  EXPECT_TRUE(daemon_.becomes_empty());
}

TEST_F(Commands, RingsAreLaidOutAsLibrxeReadsThem) {
  ib_uverbs_create_cq in{};
  in.cqe = 100;
  in.comp_channel = -1;
  const auto out = client_.plain(IB_USER_VERBS_CMD_CREATE_CQ, in, kCqOut);
  ASSERT_EQ(out.error, 0);
  EXPECT_EQ(out.as<ib_uverbs_create_cq_resp>().cqe, 127u);
  const auto mi = out.as<rxe_create_cq_resp>(sizeof(ib_uverbs_create_cq_resp)).mi;
  EXPECT_EQ(mi.size % 4096, 0u);
  EXPECT_GE(mi.size, rxe::kQueueData + 128 * rxe::kCqElementBytes);
  void* ring = ::mmap(nullptr, mi.size, PROT_READ | PROT_WRITE, MAP_SHARED,
                      client_.context_fd.get(), static_cast<off_t>(mi.offset));
  ASSERT_NE(ring, MAP_FAILED);
  const auto* bytes = static_cast<const std::byte*>(ring);
  EXPECT_EQ(load<std::uint32_t>(bytes + rxe::kQueueLog2ElemSize), 6u);
  EXPECT_EQ(load<std::uint32_t>(bytes + rxe::kQueueIndexMask), 127u);
  EXPECT_EQ(load<std::uint32_t>(bytes + rxe::kQueueProducerIndex), 0u);
  ::munmap(ring, mi.size);
}

TEST_F(Commands, ResizingKeepsUnpolledCompletions) {
  ib_uverbs_create_cq in{};
  in.cqe = 7;
  in.comp_channel = -1;
  const auto made = client_.plain(IB_USER_VERBS_CMD_CREATE_CQ, in, kCqOut);
  ASSERT_EQ(made.error, 0);
  const auto map = [&](const mminfo& mi) {
    return static_cast<std::byte*>(::mmap(nullptr, mi.size, PROT_READ | PROT_WRITE, MAP_SHARED,
                                          client_.context_fd.get(), static_cast<off_t>(mi.offset)));
  };
  std::byte* old_ring = map(made.as<rxe_create_cq_resp>(8).mi);
  // Three completions that wrap around: 6, 7 and 0.
  store(old_ring + rxe::kQueueConsumerIndex, std::uint32_t{6});
  store(old_ring + rxe::kQueueProducerIndex, std::uint32_t{1});
  for (const std::uint32_t i : {6u, 7u, 0u}) {
    store(old_ring + rxe::kQueueData + i * rxe::kCqElementBytes, std::uint64_t{100} + i);
  }
  const std::uint32_t handle = made.as<ib_uverbs_create_cq_resp>().cq_handle;
  // A ring of 2 would be rounded up to 3: the request decides.
  for (const std::uint32_t size : {0u, 1u, 2u, 1u << 22}) {
    EXPECT_EQ(destroy(IB_USER_VERBS_CMD_RESIZE_CQ, ib_uverbs_resize_cq{0, handle, size}, 24),
              EINVAL);
  }
  const auto resized =
      client_.plain(IB_USER_VERBS_CMD_RESIZE_CQ, ib_uverbs_resize_cq{0, handle, 20}, 24);
  ASSERT_EQ(resized.error, 0);
  EXPECT_EQ(resized.as<ib_uverbs_resize_cq_resp>().cqe, 31u);
  const std::byte* ring = map(resized.as<rxe_resize_cq_resp>(8).mi);
  EXPECT_EQ(load<std::uint32_t>(ring + rxe::kQueueProducerIndex), 3u);
  EXPECT_EQ(load<std::uint32_t>(ring + rxe::kQueueConsumerIndex), 0u);
  EXPECT_EQ(load<std::uint64_t>(ring + rxe::kQueueData), 106u);
  EXPECT_EQ(load<std::uint64_t>(ring + rxe::kQueueData + 2 * rxe::kCqElementBytes), 100u);
  EXPECT_EQ(destroy_cq(handle), 0);
}

TEST_F(Commands, CompletionsAreDroppedOfAQueuePairInResetOnly) {
  const auto drop = [&](std::uint32_t handle) {
    return destroy(abi::kCommandDropCompletions, abi::DropCompletions{handle, 0});
  };
  const auto qp = client_.create_qp(client_.alloc_pd(), client_.create_cq(10, -1, 1).cq_handle);
  EXPECT_EQ(drop(qp.qp_handle), 0);
  EXPECT_EQ(drop(qp.qp_handle + 1), EINVAL);
  ASSERT_EQ(client_.to_init(qp.qp_handle), 0);
  EXPECT_EQ(drop(qp.qp_handle), EINVAL);
}

TEST_F(Commands, AQueuePairsCapsAreRoundedUpAndItsRingsContinueEachOther) {
  ib_uverbs_create_qp in{};
  in.pd_handle = client_.alloc_pd();
  in.send_cq_handle = in.recv_cq_handle = client_.create_cq(10, -1, 1).cq_handle;
  in.max_send_wr = in.max_recv_wr = 4;
  in.max_send_sge = in.max_recv_sge = 1;
  in.qp_type = 2;
  const auto out = client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in, kQpOut);
  ASSERT_EQ(out.error, 0);
  const auto made = out.as<ib_uverbs_create_qp_resp>();
  EXPECT_EQ(made.max_send_wr, 7u);
  EXPECT_EQ(made.max_recv_wr, 7u);
  EXPECT_GE(made.max_inline_data, 64u);
  EXPECT_GE(made.qpn, 2u);
  const auto rings = out.as<rxe_create_qp_resp>(sizeof(ib_uverbs_create_qp_resp));
  EXPECT_EQ(rings.sq_mi.offset + rings.sq_mi.size, rings.rq_mi.offset);
}

TEST_F(Commands, WhatTheDeviceDoesNotHaveIsNotSupported) {
  const std::uint32_t pd = client_.alloc_pd();
  const std::uint32_t cq = client_.create_cq(10, -1, 1).cq_handle;
  ib_uverbs_create_qp in{};
  in.pd_handle = pd;
  in.send_cq_handle = in.recv_cq_handle = cq;
  in.max_send_wr = in.max_recv_wr = in.max_send_sge = in.max_recv_sge = 1;
  for (const int type : {8, 255}) {
    in.qp_type = static_cast<std::uint8_t>(type);
    EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in, kQpOut).error, EOPNOTSUPP);
  }
  in.qp_type = 2;
  in.max_send_wr = ~0u;
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in, kQpOut).error, EINVAL);
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_XSRQ, ib_uverbs_create_xsrq{}, 16).error,
            EOPNOTSUPP);
}

TEST_F(Commands, CompletionQueueSizesAreBounded) {
  ib_uverbs_create_cq in{};
  in.comp_channel = -1;
  for (const std::uint32_t cqe : {0u, 1u << 22, ~0u}) {
    in.cqe = cqe;
    EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_CQ, in, kCqOut).error, EINVAL) << cqe;
  }
  in.cqe = 1;
  in.comp_vector = 1u << 20;
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_CQ, in, kCqOut).error, EINVAL);
  in.comp_vector = 0;
  in.comp_channel = 77;
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_CREATE_CQ, in, kCqOut).error, EINVAL);
}

TEST_F(Commands, OnlyMappedMemoryWithTheRightsIsRegistered) {
  constexpr std::size_t kBytes = 4 * 4096;
  auto* memory = static_cast<char*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::mprotect(memory + 4096, 4096, PROT_READ), 0);
  ASSERT_EQ(::munmap(memory + 3 * 4096, 4096), 0);
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  const std::uint32_t pd = client_.alloc_pd();
  constexpr std::uint32_t kWrite = 1;  // IBV_ACCESS_LOCAL_WRITE
  EXPECT_EQ(reg_mr(pd, at, 4096, kWrite).error, 0);
  EXPECT_EQ(reg_mr(pd, at, 2 * 4096, 0).error, 0);
  EXPECT_EQ(reg_mr(pd, at, 2 * 4096, kWrite).error, EFAULT);
  EXPECT_EQ(reg_mr(pd, at, kBytes, 0).error, EFAULT);
  EXPECT_EQ(reg_mr(pd, at, 0, 0).error, EINVAL);
  EXPECT_NE(reg_mr(pd, at, ~std::uint64_t{0}, 0).error, 0);
  EXPECT_NE(reg_mr(pd, 0xffff'8000'0000'0000, 4096, 0).error, 0);
  EXPECT_EQ(reg_mr(pd, at, 4096, 2).error, EINVAL);  // remote write without local write
  EXPECT_EQ(reg_mr(pd, at, 4096, 1 << 9).error, EOPNOTSUPP);
  EXPECT_EQ(reg_mr(pd + 1, at, 4096, 0).error, EINVAL);
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  ::munmap(memory, 3 * 4096);
}

TEST_F(Commands, ModifyChecksStatesMasksAndPaths) {
  const std::uint32_t pd = client_.alloc_pd();
  const auto cq = client_.create_cq(10, -1, 1).cq_handle;
  const auto qp = client_.create_qp(pd, cq);
  EXPECT_EQ(client_.to_rtr(qp.qp_handle, qp.qpn, "10.100.0.2", 3), EINVAL);  // from RESET
  ASSERT_EQ(client_.to_init(qp.qp_handle), 0);
  auto in = Client::rtr_request(qp.qp_handle, qp.qpn, "10.100.0.1", 3);
  in.dest.is_global = 0;
  EXPECT_EQ(client_.modify_qp(in), EINVAL);
  in.dest.is_global = 1;
  in.dest.sgid_index = 200;
  EXPECT_EQ(client_.modify_qp(in), EINVAL);
  in.dest.sgid_index = 5;  // an IPv6 source for an IPv4 destination
  EXPECT_EQ(client_.modify_qp(in), EINVAL);
  in.dest.sgid_index = 3;
  in.path_mtu = 9;
  EXPECT_EQ(client_.modify_qp(in), EINVAL);
  in.path_mtu = 3;
  in.qp_state = 99;
  EXPECT_EQ(client_.modify_qp(in), EINVAL);
  in.qp_state = 2;
  EXPECT_EQ(client_.modify_qp(in), 0);
  // Below RTS nothing may be posted.
  ib_uverbs_post_send post{};
  post.qp_handle = qp.qp_handle;
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_POST_SEND, post, 0).error, EINVAL);

  const auto out = client_.plain(IB_USER_VERBS_CMD_QUERY_QP, ib_uverbs_query_qp{0, qp.qp_handle, 0},
                                 sizeof(ib_uverbs_query_qp_resp));
  ASSERT_EQ(out.error, 0);
  const auto got = out.as<ib_uverbs_query_qp_resp>();
  EXPECT_EQ(got.qp_state, 2);
  EXPECT_EQ(got.path_mtu, 3);
  EXPECT_EQ(got.dest_qp_num, qp.qpn);
  EXPECT_EQ(got.dest.sgid_index, 3);
  EXPECT_EQ(got.dest.is_global, 1);
}

TEST_F(Commands, ANeighbourThatDoesNotAnswerIsATimeout) {
  const auto qp = client_.create_qp(client_.alloc_pd(), client_.create_cq(10, -1, 1).cq_handle);
  ASSERT_EQ(client_.to_init(qp.qp_handle), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(client_.to_rtr(qp.qp_handle, 17, "10.100.0.77", 3), ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(800));
  // The connection goes on.
  EXPECT_EQ(client_.to_rtr(qp.qp_handle, 17, "10.100.0.2", 3), 0);
}

TEST_F(Commands, WaitingForANeighbourHoldsNobodyElseUp) {
  const auto qp = client_.create_qp(client_.alloc_pd(), client_.create_cq(10, -1, 1).cq_handle);
  ASSERT_EQ(client_.to_init(qp.qp_handle), 0);
  const auto request = Client::rtr_request(qp.qp_handle, 17, "10.100.0.77", 3);
  const auto command =
      Client::frame_plain(IB_USER_VERBS_CMD_MODIFY_QP,
                          {reinterpret_cast<const std::byte*>(&request), sizeof request}, 0);
  const abi::MessageHeader header{abi::kMessageMagic,
                                  abi::MessageType::kCommand,
                                  1,
                                  static_cast<std::uint32_t>(command.size()),
                                  0,
                                  0};
  std::vector<std::byte> bytes(sizeof header + command.size());
  store(bytes.data(), header);
  std::copy(command.begin(), command.end(), bytes.begin() + sizeof header);
  client_.send_raw(bytes);
  // Another client has its whole life meanwhile; then the waiting one ends in the middle of it.
  Client other(daemon_);
  other.open(1);
  other.get_context();
  (void)other.alloc_pd();
  other.close();
  EXPECT_EQ(daemon_.objects(0)["qps"], 1);
  client_.close();
  EXPECT_TRUE(daemon_.becomes_empty());
}

class Channels : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    auto made =
        client_.plain(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{}, 4);
    ASSERT_EQ(made.error, 0);
    ASSERT_TRUE(made.fd.is_open());
    channel_ = std::move(made.fd);
    channel_handle_ = static_cast<std::int32_t>(made.channel_handle);
  }
  UniqueFd channel_;
  std::int32_t channel_handle_ = -1;
};

TEST_F(Channels, AChannelGoesWhenItIsClosedAndItsLastQueueIsGone) {
  const auto cq = client_.create_cq(10, channel_handle_, 1).cq_handle;
  EXPECT_EQ(daemon_.objects(0)["channels"], 1);
  channel_.reset();
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, ib_uverbs_req_notify_cq{cq, 0}, 0).error,
            0);
  EXPECT_EQ(daemon_.objects(0)["channels"], 1);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(daemon_.objects(0)["channels"], 0);
}

// A queue pair with one posted receive and a completion queue with a channel.
class ChannelEvents : public Channels {
 protected:
  static constexpr std::uint64_t kCookie = 0x1122'3344'5566'7788;

  void SetUp() override {
    Channels::SetUp();
    cq_ = client_.create_cq(10, channel_handle_, kCookie).cq_handle;
    ib_uverbs_create_qp in{};
    in.pd_handle = client_.alloc_pd();
    in.send_cq_handle = in.recv_cq_handle = cq_;
    in.max_send_wr = in.max_recv_wr = in.max_send_sge = in.max_recv_sge = 1;
    in.qp_type = 2;
    const auto made = client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in, kQpOut);
    ASSERT_EQ(made.error, 0);
    qp_ = made.as<ib_uverbs_create_qp_resp>().qp_handle;
    const auto mi = made.as<rxe_create_qp_resp>(sizeof(ib_uverbs_create_qp_resp)).rq_mi;
    ASSERT_EQ(client_.to_init(qp_), 0);
    auto* ring =
        static_cast<std::byte*>(::mmap(nullptr, mi.size, PROT_READ | PROT_WRITE, MAP_SHARED,
                                       client_.context_fd.get(), static_cast<off_t>(mi.offset)));
    ASSERT_NE(ring, MAP_FAILED);
    store(ring + rxe::kQueueProducerIndex, std::uint32_t{1});  // an empty work request
    ::munmap(ring, mi.size);
  }

  void arm() {
    const ib_uverbs_req_notify_cq in{cq_, 0};
    ASSERT_EQ(client_.plain(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, in, 0).error, 0);
  }
  /// Flushes the work request: one completion.
  void fail_queue_pair() {
    ib_uverbs_modify_qp to_error{};
    to_error.qp_handle = qp_;
    to_error.qp_state = 6;
    to_error.attr_mask = transport::kQpState;
    ASSERT_EQ(client_.modify_qp(to_error), 0);
  }

  std::uint64_t read_event() {
    std::uint64_t cookie = 0;
    EXPECT_EQ(::read(channel_.get(), &cookie, sizeof cookie), static_cast<ssize_t>(sizeof cookie));
    return cookie;
  }
  std::uint32_t reported_by_destroy() {
    EXPECT_EQ(destroy_qp(qp_), 0);
    const auto gone = client_.plain(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, cq_, 0},
                                    sizeof(ib_uverbs_destroy_cq_resp));
    EXPECT_EQ(gone.error, 0);
    return gone.as<ib_uverbs_destroy_cq_resp>().comp_events_reported;
  }

  std::uint32_t cq_ = 0;
  std::uint32_t qp_ = 0;
};

TEST_F(ChannelEvents, OneThatWasReadIsReported) {
  arm();
  fail_queue_pair();
  EXPECT_EQ(read_event(), kCookie);
  EXPECT_EQ(reported_by_destroy(), 1u);
}

TEST_F(ChannelEvents, OneThatWasNotReadIsWithdrawn) {
  arm();
  fail_queue_pair();
  EXPECT_EQ(reported_by_destroy(), 0u);
  ASSERT_EQ(::fcntl(channel_.get(), F_SETFL, O_NONBLOCK), 0);
  std::uint64_t cookie = 0;
  EXPECT_EQ(::read(channel_.get(), &cookie, sizeof cookie), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(ChannelEvents, ArmingAQueueThatHoldsACompletionFiresAtOnce) {
  fail_queue_pair();
  arm();
  EXPECT_EQ(read_event(), kCookie);
  EXPECT_EQ(reported_by_destroy(), 1u);
}

}  // namespace
}  // namespace rocemu::control::testing
