// Types of queue pairs, address handles and multicast membership by the commands of ib_uverbs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "control/addresses.h"
#include "dataplane/transport/qp_attr.h"
#include "tests/unit/control/harness.h"

namespace rocemu::control::testing {
namespace {

constexpr std::uint8_t kGidIndex = 3;  // RoCE v2 over IPv4

class Datagrams : public ::testing::Test {
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

  Client::Outcome create_qp(int type) {
    ib_uverbs_create_qp in{};
    in.pd_handle = pd_;
    in.send_cq_handle = in.recv_cq_handle = cq_;
    in.max_send_wr = in.max_recv_wr = 4;
    in.max_send_sge = in.max_recv_sge = 1;
    in.qp_type = static_cast<std::uint8_t>(type);
    return client_.plain(IB_USER_VERBS_CMD_CREATE_QP, in,
                         sizeof(ib_uverbs_create_qp_resp) + sizeof(rxe_create_qp_resp));
  }
  std::uint32_t make_ud() {
    const auto made = create_qp(static_cast<int>(transport::QpType::kUd));
    EXPECT_EQ(made.error, 0);
    return made.as<ib_uverbs_create_qp_resp>().qp_handle;
  }
  int destroy_qp(std::uint32_t qp) {
    return client_.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, 8).error;
  }
  ib_uverbs_create_ah ah_request(const std::string& destination) const {
    ib_uverbs_create_ah in{};
    in.pd_handle = pd_;
    in.attr.is_global = 1;
    in.attr.port_num = 1;
    in.attr.grh.sgid_index = kGidIndex;
    const wire::Gid gid = parse_address(destination).value();
    std::copy(gid.begin(), gid.end(), std::begin(in.attr.grh.dgid));
    return in;
  }
  Client::Outcome create_ah(const ib_uverbs_create_ah& in) {
    return client_.plain(IB_USER_VERBS_CMD_CREATE_AH, in,
                         sizeof(ib_uverbs_create_ah_resp) + sizeof(rxe_create_ah_resp));
  }
  int destroy_ah(std::uint32_t ah) {
    return client_.plain(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{ah}, 0).error;
  }
  int member(std::uint32_t command, std::uint32_t qp, const std::string& group,
             std::uint16_t lid = 0) {
    ib_uverbs_attach_mcast in{};
    const wire::Gid gid = parse_address(group).value();
    std::copy(gid.begin(), gid.end(), std::begin(in.gid));
    in.qp_handle = qp;
    in.mlid = lid;
    return client_.plain(command, in, 0).error;
  }
  int attach(std::uint32_t qp, const std::string& group, std::uint16_t lid = 0) {
    return member(IB_USER_VERBS_CMD_ATTACH_MCAST, qp, group, lid);
  }
  int detach(std::uint32_t qp, const std::string& group, std::uint16_t lid = 0) {
    return member(IB_USER_VERBS_CMD_DETACH_MCAST, qp, group, lid);
  }

  static inline std::unique_ptr<RunningDaemon> running_;
  const RunningDaemon& daemon_ = *running_;
  Client client_{daemon_};
  std::uint32_t pd_ = 0;
  std::uint32_t cq_ = 0;
};

TEST_F(Datagrams, RcUcAndUdAreMadeAndTheKernelsTypesAreRefused) {
  for (const int type : {2, 3, 4}) {
    const auto made = create_qp(type);
    EXPECT_EQ(made.error, 0) << type;
    EXPECT_EQ(destroy_qp(made.as<ib_uverbs_create_qp_resp>().qp_handle), 0);
  }
  EXPECT_EQ(create_qp(0).error, EINVAL);  // SMI
  EXPECT_EQ(create_qp(1).error, EINVAL);  // GSI
  for (const int type : {5, 8, 9, 10, 255}) {
    EXPECT_EQ(create_qp(type).error, EOPNOTSUPP) << type;
  }
}

TEST_F(Datagrams, AttributesOfUdAreThoseOfItsTable) {
  using namespace transport;
  const std::uint32_t qp = make_ud();
  ib_uverbs_modify_qp in{};
  in.qp_handle = qp;
  in.port_num = 1;
  in.qkey = 0x1234'5678;
  const auto to = [&](QpState state, std::uint32_t mask) {
    in.qp_state = static_cast<std::uint8_t>(state);
    in.attr_mask = kQpState | mask;
    return client_.modify_qp(in);
  };
  EXPECT_EQ(to(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags), EINVAL);
  EXPECT_EQ(to(QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey), 0);
  EXPECT_EQ(to(QpState::kRtr, kQpPathMtu), EINVAL);
  EXPECT_EQ(to(QpState::kRtr, 0), 0);
  EXPECT_EQ(to(QpState::kRts, 0), EINVAL);
  EXPECT_EQ(to(QpState::kRts, kQpSqPsn), 0);
  const auto seen = client_.plain(IB_USER_VERBS_CMD_QUERY_QP, ib_uverbs_query_qp{0, qp, 0},
                                  sizeof(ib_uverbs_query_qp_resp));
  ASSERT_EQ(seen.error, 0);
  EXPECT_EQ(seen.as<ib_uverbs_query_qp_resp>().qkey, 0x1234'5678u);
  EXPECT_EQ(seen.as<ib_uverbs_query_qp_resp>().qp_state, static_cast<int>(QpState::kRts));
}

TEST_F(Datagrams, AddressHandlesAreCheckedCountedAndKeepTheirPd) {
  const auto first = create_ah(ah_request("10.100.0.2"));
  ASSERT_EQ(first.error, 0);
  const auto number = first.as<rxe_create_ah_resp>(sizeof(ib_uverbs_create_ah_resp)).ah_num;
  EXPECT_NE(number, 0u);
  const auto second = create_ah(ah_request("239.1.2.3"));
  ASSERT_EQ(second.error, 0);
  EXPECT_NE(second.as<rxe_create_ah_resp>(sizeof(ib_uverbs_create_ah_resp)).ah_num, number);
  EXPECT_EQ(client_.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd_}, 0).error, EBUSY);

  auto in = ah_request("10.100.0.2");
  in.attr.is_global = 0;
  EXPECT_EQ(create_ah(in).error, EINVAL);
  in = ah_request("10.100.0.2");
  in.attr.port_num = 2;
  EXPECT_EQ(create_ah(in).error, EINVAL);
  in = ah_request("10.100.0.2");
  in.attr.grh.sgid_index = 200;
  EXPECT_EQ(create_ah(in).error, EINVAL);
  in = ah_request("10.100.0.2");
  in.pd_handle = pd_ + 1;
  EXPECT_EQ(create_ah(in).error, EINVAL);
  EXPECT_EQ(create_ah(ah_request("fd00::1")).error, EINVAL);  // an IPv4 source

  const std::uint32_t handle = first.as<ib_uverbs_create_ah_resp>().ah_handle;
  EXPECT_EQ(destroy_ah(handle), 0);
  EXPECT_EQ(destroy_ah(handle), EINVAL);
}

TEST_F(Datagrams, NeighbourThatDoesNotAnswerIsATimeOut) {
  EXPECT_EQ(create_ah(ah_request("10.100.0.77")).error, ETIMEDOUT);
}

TEST_F(Datagrams, MembersOfGroupsAreBusyUntilTheyLeave) {
  const std::uint32_t qp = make_ud();
  EXPECT_EQ(attach(qp, "239.1.1.1"), 0);
  EXPECT_EQ(attach(qp, "239.1.1.1"), 0);
  EXPECT_EQ(attach(qp, "239.1.1.1", 0xc001), 0);
  EXPECT_EQ(attach(qp, "ff0e::1"), 0);
  EXPECT_EQ(attach(qp, "10.100.0.2"), EINVAL);
  EXPECT_EQ(attach(qp + 1, "239.1.1.1"), EINVAL);
  EXPECT_EQ(destroy_qp(qp), EBUSY);
  EXPECT_EQ(detach(qp, "239.1.1.2"), EINVAL);
  EXPECT_EQ(detach(qp, "239.1.1.1"), 0);
  EXPECT_EQ(detach(qp, "239.1.1.1"), EINVAL);
  EXPECT_EQ(detach(qp, "239.1.1.1", 0xc001), 0);
  EXPECT_EQ(detach(qp, "ff0e::1"), 0);
  EXPECT_EQ(destroy_qp(qp), 0);
  const auto rc = create_qp(static_cast<int>(transport::QpType::kRc));
  EXPECT_EQ(attach(rc.as<ib_uverbs_create_qp_resp>().qp_handle, "239.1.1.1"), EINVAL);
}

TEST_F(Datagrams, WhatAContextLeavesBehindIsGone) {
  {
    Client other(daemon_);
    other.open(0);
    other.get_context();
    const std::uint32_t pd = other.alloc_pd();
    auto in = ah_request("10.100.0.2");
    in.pd_handle = pd;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(other
                    .plain(IB_USER_VERBS_CMD_CREATE_AH, in,
                           sizeof(ib_uverbs_create_ah_resp) + sizeof(rxe_create_ah_resp))
                    .error,
                0);
    }
  }
  client_.close();
  EXPECT_TRUE(daemon_.becomes_empty());
}

}  // namespace
}  // namespace rocemu::control::testing
