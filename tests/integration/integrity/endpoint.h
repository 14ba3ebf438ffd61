// One process's verbs: device, buffer, queue pairs; posts a round's operations and collects every
// completion, in order, by polling or by events. Throws std::runtime_error with what went wrong.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/integration/integrity/plan.h"

namespace rocemu::integrity {

struct PeerQp {
  std::uint32_t number = 0;
  std::uint32_t psn = 0;
};

struct PeerInfo {
  std::uint8_t gid[16] = {};
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint32_t qp_count = 0;
  PeerQp qps[64] = {};
};

class Endpoint {
 public:
  Endpoint(const std::string& device, int gid_index, int side);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void make_qps(std::uint32_t count, Prng& draw);
  void drop_qps();
  PeerInfo info() const;
  /// `ack_timeout`: 4.096 us * 2^ack_timeout, as in ibv_qp_attr.
  void connect(const PeerInfo& peer, ibv_mtu mtu, std::uint8_t ack_timeout);

  void fill(const std::vector<std::byte>& bytes);
  void post_receives(const Round& round);
  void post_requests(const Round& round);
  /// Waits for all completions that the round owes this side; each must be the next of its queue
  /// and right in every field.
  void collect(const Round& round);
  /// The first offset where the buffer is not `expected`, or -1.
  std::int64_t find_difference(const std::vector<std::byte>& expected) const;
  /// What is still to come, a queue pair at a time: for the message of a run that hangs.
  std::string describe_owed() const;

  std::uint64_t completions() const { return completions_; }

 private:
  struct Owed {
    std::uint64_t wr_id;
    ibv_wc_opcode opcode;
    std::uint32_t bytes;
    bool has_immediate;
    std::uint32_t immediate;
  };
  void check(const ibv_wc& wc);
  void wait_event();

  int side_;
  int gid_index_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::vector<std::byte> buffer_;
  std::vector<ibv_qp*> qps_;
  std::vector<std::uint32_t> psns_;
  PeerInfo peer_;
  std::vector<std::deque<Owed>> owed_sends_;
  std::vector<std::deque<Owed>> owed_receives_;
  std::uint64_t completions_ = 0;
};

}  // namespace rocemu::integrity
