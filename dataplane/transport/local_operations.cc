#include "dataplane/transport/local_operations.h"

namespace rocemu::transport {

bool must_local_wait(const Qp& qp, const SendWorkRequest& wr) {
  if (wr.opcode == WrOpcode::kLocalInv) return qp.record_head != kNoIndex;
  return (wr.flags & kSendFence) != 0 && qp.reads_outstanding != 0;
}

WcStatus run_local(Shard& shard, const Qp& qp, const SendWorkRequest& wr) {
  const memory::KeyUser user{qp.pd, qp.number};
  if (wr.opcode == WrOpcode::kBindMw) {
    return shard.regions.bind(wr.bind, user) ? WcStatus::kSuccess : WcStatus::kMwBindErr;
  }
  if (shard.regions.invalidate(wr.invalidate_rkey, user)) return WcStatus::kSuccess;
  return shard.config.is_rxe ? WcStatus::kLocQpOpErr : WcStatus::kMwBindErr;
}

}  // namespace rocemu::transport
