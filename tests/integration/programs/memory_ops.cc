// Operations on memory objects through plain verbs, between two devices of one process: windows of
// type 1 and 2, SEND with invalidate, local invalidate, registering anew, advice, ATOMIC WRITE.
// Prints the payload octets that must have crossed the link. With a fourth argument: ends with
// windows bound and everything open. usage: memory_ops DEVICE DEVICE GID [leave]
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr std::size_t kBytes = 64 * 1024;
constexpr std::size_t kWindowOffset = 4096;
constexpr std::uint32_t kWindowBytes = 32 * 1024;
constexpr int kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

std::uint64_t crossed = 0;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "memory_ops: %s (errno %d)\n", what, errno);
  std::exit(1);
}

struct End {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  std::uint8_t* bytes = nullptr;
};

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

End open_end(const char* device, int gid_index, int access) {
  End end;
  end.context = open_named(device);
  require(end.context != nullptr, "cannot open the device");
  require(ibv_query_gid(end.context, 1, gid_index, &end.gid) == 0, "no such GID");
  end.pd = ibv_alloc_pd(end.context);
  end.cq = ibv_create_cq(end.context, 64, nullptr, nullptr, 0);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(end.pd != nullptr && end.cq != nullptr && memory != MAP_FAILED, "no resources");
  end.bytes = static_cast<std::uint8_t*>(memory);
  end.mr = ibv_reg_mr(end.pd, memory, kBytes, access);
  require(end.mr != nullptr, "no memory region");
  return end;
}

void close_end(End& end) {
  require(ibv_destroy_qp(end.qp) == 0, "destroy_qp");
  require(ibv_dereg_mr(end.mr) == 0, "dereg_mr");
  require(ibv_destroy_cq(end.cq) == 0, "destroy_cq");
  require(ibv_dealloc_pd(end.pd) == 0, "dealloc_pd");
  require(ibv_close_device(end.context) == 0, "close_device");
  munmap(end.bytes, kBytes);
}

void make_qp(End& end) {
  if (end.qp != nullptr) require(ibv_destroy_qp(end.qp) == 0, "destroy_qp");
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = end.cq;
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.pd = end.pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE |
                        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
                        IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND;
  end.qp = ibv_create_qp_ex(end.context, &init);
  require(end.qp != nullptr, "no queue pair");
}

void to_rts(End& end, const End& peer, int gid_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kRemote | IBV_ACCESS_REMOTE_ATOMIC;
  require(ibv_modify_qp(end.qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "no INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qp->qp_num;
  attr.max_dest_rd_atomic = 4;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  require(ibv_modify_qp(end.qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "no RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  require(ibv_modify_qp(end.qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "no RTS");
}

int gid_of_all = 0;

// Fresh queue pairs between both ends.
void connect(End& a, End& b) {
  make_qp(a);
  make_qp(b);
  to_rts(a, b, gid_of_all);
  to_rts(b, a, gid_of_all);
}

ibv_wc next_completion(const End& end) {
  ibv_wc wc{};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int found = 0;
  while ((found = ibv_poll_cq(end.cq, 1, &wc)) == 0) {
    require(std::chrono::steady_clock::now() < deadline, "no completion");
  }
  require(found == 1, "poll_cq");
  return wc;
}

void expect_done(const End& end, const char* what) {
  const ibv_wc wc = next_completion(end);
  if (wc.status != IBV_WC_SUCCESS) std::fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
  require(wc.status == IBV_WC_SUCCESS, what);
}

// Writes `length` changing bytes from `from` and returns how that ended.
ibv_wc_status write_remote(End& from, std::uint64_t address, std::uint32_t rkey,
                           std::uint32_t length) {
  static std::uint8_t seed = 0;
  ++seed;
  for (std::uint32_t i = 0; i < length; ++i) {
    from.bytes[i] = static_cast<std::uint8_t>(i * 31 + seed);
  }
  ibv_sge sge{reinterpret_cast<std::uint64_t>(from.bytes), length, from.mr->lkey};
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  require(ibv_post_send(from.qp, &wr, &bad) == 0, "post_send");
  const ibv_wc_status status = next_completion(from).status;
  if (status == IBV_WC_SUCCESS) crossed += length;
  return status;
}

std::uint64_t window_address(const End& end) {
  return reinterpret_cast<std::uint64_t>(end.bytes) + kWindowOffset;
}

void expect_written(End& a, End& b, std::uint32_t rkey, const char* what) {
  require(write_remote(a, window_address(b), rkey, kWindowBytes) == IBV_WC_SUCCESS, what);
  require(std::equal(a.bytes, a.bytes + kWindowBytes, b.bytes + kWindowOffset), "other bytes");
}

ibv_mw_bind_info bind_info(const End& end, std::uint64_t length) {
  return {end.mr, window_address(end), length, kRemote};
}

std::uint32_t bind_by_work_request(const End& end, ibv_mw* mw) {
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind_info(end, kWindowBytes);
  require(ibv_post_send(end.qp, &wr, &bad) == 0, "post_send of a bind");
  expect_done(end, "bind of type 2");
  return wr.bind_mw.rkey;
}

void test_type_1(End& a, End& b) {
  connect(a, b);
  ibv_mw* mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
  require(mw != nullptr, "alloc_mw 1");
  ibv_mw_bind bind{1, IBV_SEND_SIGNALED, bind_info(b, kWindowBytes)};
  require(ibv_bind_mw(b.qp, mw, &bind) == 0, "bind_mw");
  expect_done(b, "bind of type 1");
  expect_written(a, b, mw->rkey, "write into a window of type 1");
  require(ibv_dereg_mr(b.mr) != 0, "a region with a window went");
  bind.bind_info.length = 0;
  require(ibv_bind_mw(b.qp, mw, &bind) == 0, "bind_mw to nothing");
  expect_done(b, "bind to nothing");
  require(write_remote(a, window_address(b), mw->rkey, 8) == IBV_WC_REM_ACCESS_ERR,
          "an unbound window was written");
  require(ibv_dealloc_mw(mw) == 0, "dealloc_mw");
}

void test_type_2(End& a, End& b) {
  ibv_mw* mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  require(mw != nullptr, "alloc_mw 2");
  connect(a, b);
  std::uint32_t rkey = bind_by_work_request(b, mw);
  expect_written(a, b, rkey, "write into a window of type 2");
  ibv_send_wr invalidate{};
  ibv_send_wr* bad = nullptr;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.send_flags = IBV_SEND_SIGNALED;
  invalidate.invalidate_rkey = rkey;
  require(ibv_post_send(b.qp, &invalidate, &bad) == 0, "post_send of an invalidate");
  expect_done(b, "local invalidate");
  mw->rkey = rkey;
  rkey = bind_by_work_request(b, mw);
  expect_written(a, b, rkey, "write into a window bound again");

  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_sge room{reinterpret_cast<std::uint64_t>(b.bytes), 64, b.mr->lkey};
  receive.sg_list = &room;
  receive.num_sge = 1;
  require(ibv_post_recv(b.qp, &receive, &bad_receive) == 0, "post_recv");
  ibv_sge sge{reinterpret_cast<std::uint64_t>(a.bytes), 64, a.mr->lkey};
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.send_flags = IBV_SEND_SIGNALED;
  send.sg_list = &sge;
  send.num_sge = 1;
  send.invalidate_rkey = rkey;
  require(ibv_post_send(a.qp, &send, &bad) == 0, "post_send with invalidate");
  expect_done(a, "send with invalidate");
  const ibv_wc received = next_completion(b);
  require(received.status == IBV_WC_SUCCESS && received.byte_len == 64, "the receive");
  require((received.wc_flags & IBV_WC_WITH_INV) != 0 && received.invalidated_rkey == rkey,
          "the receive does not name the key");
  crossed += 64;
  require(write_remote(a, window_address(b), rkey, 8) == IBV_WC_REM_ACCESS_ERR,
          "an invalidated window was written");
  require(ibv_dealloc_mw(mw) == 0, "dealloc_mw");
}

void test_rereg(End& a, End& b) {
  connect(a, b);
  const std::uint32_t rkey = b.mr->rkey;
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  require(
      ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal | kRemote) == 0,
      "rereg_mr of access");
  expect_written(a, b, b.mr->rkey, "write into a region with its new access");
  std::uint8_t* const old = b.bytes;
  void* fresh = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(fresh != MAP_FAILED, "no memory");
  require(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, fresh, kBytes, 0) == 0,
          "rereg_mr of the address");
  require(b.mr->addr == fresh && b.mr->rkey == rkey, "the region after rereg_mr");
  b.bytes = static_cast<std::uint8_t*>(fresh);
  munmap(old, kBytes);
  expect_written(a, b, b.mr->rkey, "write into a region at its new address");
  ibv_pd* other = ibv_alloc_pd(b.context);
  require(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0) == 0, "rereg_mr of PD");
  require(b.mr->pd == other, "the region's PD");
  require(write_remote(a, window_address(b), b.mr->rkey, 8) == IBV_WC_REM_ACCESS_ERR,
          "a region of another PD was written");
  require(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, b.pd, nullptr, 0, 0) == 0, "rereg_mr of PD");
  require(ibv_dealloc_pd(other) == 0, "the other PD is still held");
  require(ibv_rereg_mr(b.mr, 1 << 5, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT,
          "an unknown flag of rereg_mr");
  require(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                       IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD,
          "a bad access of rereg_mr");
}

void test_on_demand(End& a, End& b) {
  connect(a, b);
  // Registered before its pages are there.
  void* memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED && munmap(memory, kBytes) == 0, "no range");
  ibv_mr* mr =
      ibv_reg_mr(b.pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND | kRemote);
  require(mr != nullptr, "no region on demand");
  require(mmap(memory, kBytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory,
          "the range is taken");
  ibv_sge sge{reinterpret_cast<std::uint64_t>(memory), kBytes, mr->lkey};
  require(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge,
                        1) == 0,
          "advise_mr");
  sge.lkey = b.mr->lkey;
  require(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL,
          "advice on a region that is not on demand");
  require(write_remote(a, reinterpret_cast<std::uint64_t>(memory), mr->rkey, kWindowBytes) ==
              IBV_WC_SUCCESS,
          "write into a region on demand");
  require(std::memcmp(memory, a.bytes, kWindowBytes) == 0, "other bytes");
  require(ibv_dereg_mr(mr) == 0, "dereg_mr");
  munmap(memory, kBytes);
}

// What the daemon has to take apart by itself.
void leave_windows(End& a, End& b) {
  connect(a, b);
  ibv_mw* mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  require(mw != nullptr, "alloc_mw 2");
  expect_written(a, b, bind_by_work_request(b, mw), "write into a window of type 2");
  ibv_mw* other = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
  ibv_mw_bind bind{1, IBV_SEND_SIGNALED, bind_info(b, kWindowBytes)};
  require(other != nullptr && ibv_bind_mw(b.qp, other, &bind) == 0, "bind_mw");
  expect_done(b, "bind of type 1");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  gid_of_all = std::atoi(argv[3]);
  End a = open_end(argv[1], gid_of_all, IBV_ACCESS_LOCAL_WRITE);
  End b = open_end(argv[2], gid_of_all, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  if (argc == 5) {
    leave_windows(a, b);
  } else {
    test_type_1(a, b);
    test_type_2(a, b);
    test_rereg(a, b);
    test_on_demand(a, b);
    close_end(a);
    close_end(b);
  }
  std::printf("%llu octets\n", static_cast<unsigned long long>(crossed));
  return 0;
}
