#include "tests/integration/integrity/endpoint.h"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace rocemu::integrity {
namespace {

constexpr std::uint32_t kQueueEntries = 256;
constexpr std::uint32_t kInline = 64;
constexpr auto kPatience = std::chrono::seconds(30);

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

ibv_context* open_named(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

std::vector<ibv_sge> make_sges(const ibv_mr* mr, std::byte* base,
                               const std::vector<std::uint32_t>& pieces) {
  std::vector<ibv_sge> sges;
  for (const std::uint32_t piece : pieces) {
    sges.push_back({reinterpret_cast<std::uint64_t>(base), piece, mr->lkey});
    base += piece;
  }
  return sges;
}

ibv_wr_opcode verbs_opcode(Kind kind) {
  switch (kind) {
    case Kind::kSend:
      return IBV_WR_SEND;
    case Kind::kSendImm:
      return IBV_WR_SEND_WITH_IMM;
    case Kind::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Kind::kWriteImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Kind::kRead:
      return IBV_WR_RDMA_READ;
    case Kind::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Kind::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  return IBV_WR_SEND;
}

ibv_wc_opcode completion_opcode(Kind kind) {
  switch (kind) {
    case Kind::kSend:
    case Kind::kSendImm:
      return IBV_WC_SEND;
    case Kind::kWrite:
    case Kind::kWriteImm:
      return IBV_WC_RDMA_WRITE;
    case Kind::kRead:
      return IBV_WC_RDMA_READ;
    case Kind::kFetchAdd:
      return IBV_WC_FETCH_ADD;
    case Kind::kCompareSwap:
      return IBV_WC_COMP_SWAP;
  }
  return IBV_WC_SEND;
}

}  // namespace

Endpoint::Endpoint(const std::string& device, int gid_index, int side)
    : side_(side), gid_index_(gid_index), buffer_(kBufferBytes) {
  context_ = open_named(device);
  require(context_ != nullptr, "cannot open " + device);
  pd_ = ibv_alloc_pd(context_);
  require(pd_ != nullptr, "no protection domain");
  channel_ = ibv_create_comp_channel(context_);
  require(channel_ != nullptr, "no completion channel");
  cq_ = ibv_create_cq(context_, 8192, nullptr, channel_, 0);
  require(cq_ != nullptr, "no completion queue");
  mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC);
  require(mr_ != nullptr, "no memory region");
}

Endpoint::~Endpoint() {
  drop_qps();
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (context_ != nullptr) ibv_close_device(context_);
}

void Endpoint::make_qps(std::uint32_t count, Prng& draw) {
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {kQueueEntries, kQueueEntries, 32, 32, kInline};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    require(qp != nullptr, "no queue pair");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "no INIT");
    qps_.push_back(qp);
    // Near the wrap often.
    psns_.push_back(static_cast<std::uint32_t>(draw.below(2) != 0 ? 0xff'ffff - draw.below(200)
                                                                  : draw.below(1 << 24)));
  }
  owed_sends_.assign(count, {});
  owed_receives_.assign(count, {});
}

void Endpoint::drop_qps() {
  for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
  qps_.clear();
  psns_.clear();
}

PeerInfo Endpoint::info() const {
  PeerInfo out;
  ibv_gid gid;
  require(ibv_query_gid(context_, 1, gid_index_, &gid) == 0, "no GID");
  std::memcpy(out.gid, gid.raw, sizeof out.gid);
  out.va = reinterpret_cast<std::uint64_t>(buffer_.data());
  out.rkey = mr_->rkey;
  out.qp_count = static_cast<std::uint32_t>(qps_.size());
  for (std::size_t i = 0; i < qps_.size(); ++i) out.qps[i] = {qps_[i]->qp_num, psns_[i]};
  return out;
}

void Endpoint::connect(const PeerInfo& peer, ibv_mtu mtu, std::uint8_t ack_timeout) {
  peer_ = peer;
  require(peer.qp_count == qps_.size(), "the peer has another number of queue pairs");
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = mtu;
    attr.dest_qp_num = peer.qps[i].number;
    attr.rq_psn = peer.qps[i].psn;
    attr.max_dest_rd_atomic = 16;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
    require(
        ibv_modify_qp(qps_[i], &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "no RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = ack_timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.sq_psn = psns_[i];
    attr.max_rd_atomic = 16;
    require(ibv_modify_qp(qps_[i], &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "no RTS");
  }
}

void Endpoint::fill(const std::vector<std::byte>& bytes) {
  std::memcpy(buffer_.data(), bytes.data(), bytes.size());
}

void Endpoint::post_receives(const Round& round) {
  for (std::size_t n = 0; n < round.operations.size(); ++n) {
    const Operation& op = round.operations[n];
    if (op.initiator == side_ || !op.takes_receive()) continue;
    auto sges = make_sges(mr_, &buffer_[op.responder_offset], op.responder_pieces);
    ibv_recv_wr wr{};
    wr.wr_id = n;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(qps_[op.qp], &wr, &bad) == 0, "post_recv failed");
    owed_receives_[op.qp].push_back(
        {n, op.kind == Kind::kWriteImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, op.size,
         op.kind != Kind::kSend, op.immediate});
  }
}

void Endpoint::post_requests(const Round& round) {
  for (std::size_t n = 0; n < round.operations.size(); ++n) {
    const Operation& op = round.operations[n];
    if (op.initiator != side_) continue;
    auto sges = make_sges(mr_, &buffer_[op.initiator_offset], op.initiator_pieces);
    ibv_send_wr wr{};
    wr.wr_id = n;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = verbs_opcode(op.kind);
    wr.send_flags = (op.is_signaled ? IBV_SEND_SIGNALED : 0) |
                    (op.is_inline ? IBV_SEND_INLINE : 0) | (n % 3 == 0 ? IBV_SEND_SOLICITED : 0) |
                    (n % 7 == 0 ? IBV_SEND_FENCE : 0);
    wr.imm_data = htonl(op.immediate);
    if (op.is_atomic()) {
      wr.wr.atomic.remote_addr = peer_.va + op.responder_offset;
      wr.wr.atomic.rkey = peer_.rkey;
      const std::uint64_t start = round.number * 0x9e37'79b9'7f4a'7c15 + n;
      const bool is_swap = op.kind == Kind::kCompareSwap;
      wr.wr.atomic.compare_add = !is_swap ? op.operand : op.has_matching_compare ? start : ~start;
      wr.wr.atomic.swap = op.operand;
    } else {
      wr.wr.rdma.remote_addr = peer_.va + op.responder_offset;
      wr.wr.rdma.rkey = peer_.rkey;
    }
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(qps_[op.qp], &wr, &bad) == 0, "post_send failed");
    if (op.is_signaled) {
      owed_sends_[op.qp].push_back({n, completion_opcode(op.kind), op.size, false, 0});
    }
  }
}

void Endpoint::check(const ibv_wc& wc) {
  const auto qp =
      std::ranges::find_if(qps_, [&](const ibv_qp* q) { return q->qp_num == wc.qp_num; });
  require(qp != qps_.end(), "a completion of an unknown queue pair");
  require(wc.status == IBV_WC_SUCCESS,
          std::string("completion status ") + ibv_wc_status_str(wc.status));
  const auto index = static_cast<std::size_t>(qp - qps_.begin());
  const bool is_receive = (wc.opcode & IBV_WC_RECV) != 0;
  auto& owed = is_receive ? owed_receives_[index] : owed_sends_[index];
  require(!owed.empty(), "one completion too many");
  const Owed next = owed.front();
  owed.pop_front();
  require(wc.wr_id == next.wr_id, "completions out of order");
  require(wc.opcode == next.opcode, "a completion of the wrong operation");
  if (is_receive) {
    require(wc.byte_len == next.bytes, "a receive of the wrong length");
    require(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == next.has_immediate, "immediate data flag");
    require(!next.has_immediate || ntohl(wc.imm_data) == next.immediate, "immediate data");
  }
  ++completions_;
}

void Endpoint::wait_event() {
  require(ibv_req_notify_cq(cq_, 0) == 0, "req_notify_cq failed");
  ibv_wc wc;
  // What came before the arming raises no event of its own.
  if (ibv_poll_cq(cq_, 1, &wc) == 1) return check(wc);
  pollfd waiting{channel_->fd, POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count();
  require(::poll(&waiting, 1, static_cast<int>(ms)) == 1, "no completion event came");
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  require(ibv_get_cq_event(channel_, &cq, &cookie) == 0 && cq == cq_, "a wrong completion event");
  ibv_ack_cq_events(cq_, 1);
}

void Endpoint::collect(const Round& round) {
  const auto is_owed = [this] {
    const auto has = [](const auto& queue) { return !queue.empty(); };
    return std::ranges::any_of(owed_sends_, has) || std::ranges::any_of(owed_receives_, has);
  };
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (is_owed()) {
    ibv_wc wcs[16];
    const int count = ibv_poll_cq(cq_, 16, wcs);
    require(count >= 0, "poll_cq failed");
    for (int i = 0; i < count; ++i) check(wcs[i]);
    if (count == 0 && round.uses_events && is_owed()) wait_event();
    if (std::chrono::steady_clock::now() >= deadline) {
      throw std::runtime_error("completions are missing after 30 s:" + describe_owed());
    }
  }
  ibv_wc wc;
  require(ibv_poll_cq(cq_, 1, &wc) == 0, "one completion too many");
}

std::string Endpoint::describe_owed() const {
  std::string text;
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    text += " QP " + std::to_string(qps_[i]->qp_num) + ": " +
            std::to_string(owed_sends_[i].size()) + " sends";
    if (!owed_sends_[i].empty()) text += " from " + std::to_string(owed_sends_[i].front().wr_id);
    text += ", " + std::to_string(owed_receives_[i].size()) + " receives";
    if (!owed_receives_[i].empty()) {
      text += " from " + std::to_string(owed_receives_[i].front().wr_id);
    }
    text += ';';
  }
  return text;
}

std::int64_t Endpoint::find_difference(const std::vector<std::byte>& expected) const {
  const auto [mine, theirs] = std::ranges::mismatch(buffer_, expected);
  return theirs == expected.end() ? -1 : theirs - expected.begin();
}

}  // namespace rocemu::integrity
