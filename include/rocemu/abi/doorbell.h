// The doorbell page: what an application's threads (through the shim) and one worker share, without
// system calls while the worker is awake. One page set for each context and shard, in a memfd of
// its own, sealed against resizing; no word of it is shared between clients. Layout only: the
// shim's half is verbs_shim/, the worker's half dataplane/dpdk/.
//
// Ringing (client): set qp_pending[slot] from 0 to 1 (acq_rel exchange); when it was 0, claim a
// place by compare-exchange of `producer`, store slot + 1 there (seq_cst). Ring full: set `sweep`
// instead (seq_cst). Then the wake handshake: load `worker_state` (seq_cst); if kAsleep, exchange
// it to kAwake and, when the exchange returned kAsleep, write the context's eventfd. When the
// pending byte was 1 already, whoever set it rings. Draining (worker): take entries in order, zero
// each, publish `consumer` (release), clear qp_pending[slot] by an acq_rel *exchange*, before
// reading the QP's ring (a plain store could pass the read of the ring, and a doorbell that found
// the byte still 1 would be lost), check that the slot belongs to this context. A place that is
// claimed and not yet written (0) ends the batch: its client will ring. Before it blocks: store
// kAsleep, seq_cst fence, look at the ring and `sweep` once more. A sweep looks at every pending
// byte and every armed CQ of the context. CQ arming (client): store the arm
// value (seq_cst), then ring entry kArmCqFlag | cq slot so that the worker fires at once when the
// CQ is not empty. Worker: after a CQE's producer index is published, seq_cst fence, load the arm
// word; when it matches, exchange it to kDisarmed and send one completion event.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rocemu {

inline constexpr std::uint32_t kDoorbellMagic = 0x524f4442;  // "RODB"
inline constexpr std::uint32_t kDoorbellVersion = 2;
inline constexpr std::uint32_t kDoorbellRingSize =
    4096;  ///< Entries; power of two. Full: the sweep flag.
inline constexpr std::uint32_t kMaxQpSlots = 1u << 20;  ///< QPs a context may hold on one shard.
inline constexpr std::uint32_t kMaxCqSlots = 1u << 16;  ///< CQs a context may hold on one shard.
inline constexpr std::uint32_t kArmCqFlag =
    1u << 30;  ///< Ring entry: the rest is a CQ slot to check for completions.

// A QP's and a CQ's uverbs handle: the shard that serves it, and its slot in that shard's page.
inline constexpr std::uint32_t kHandleShardShift = 24;
constexpr std::uint32_t make_handle(std::uint32_t shard, std::uint32_t slot) {
  return shard << kHandleShardShift | slot;
}
constexpr std::uint32_t handle_shard(std::uint32_t handle) { return handle >> kHandleShardShift; }
constexpr std::uint32_t handle_slot(std::uint32_t handle) {
  return handle & ((1u << kHandleShardShift) - 1);
}
static_assert(kMaxQpSlots <= 1u << kHandleShardShift);
static_assert(kMaxCqSlots <= 1u << kHandleShardShift);

enum WorkerState : std::uint32_t { kAwake = 0, kAsleep = 1 };
enum CqArm : std::uint32_t { kDisarmed = 0, kArmedSolicited = 1, kArmedAny = 2 };

struct DoorbellPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::byte pad0[56];

  alignas(64) std::atomic<std::uint32_t> worker_state;
  alignas(64) std::atomic<std::uint32_t> producer;
  alignas(64) std::atomic<std::uint32_t> consumer;
  alignas(64) std::atomic<std::uint32_t> sweep;
  alignas(64) std::atomic<std::uint32_t> entries[kDoorbellRingSize];  ///< 0: not yet written; else
                                                                      ///< entry + 1.
  alignas(64) std::atomic<std::uint32_t> cq_arm[kMaxCqSlots];
  alignas(64) std::atomic<std::uint8_t> qp_pending[kMaxQpSlots];
  /// Written by the control thread at each modify, read by the client: 0 while the QP is in a state
  /// that takes no send work requests (10.3.1: below RTS), so that posting fails at once.
  alignas(64) std::atomic<std::uint8_t> qp_takes_sends[kMaxQpSlots];
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(DoorbellPage, worker_state) == 64);
static_assert(offsetof(DoorbellPage, producer) == 128);
static_assert(offsetof(DoorbellPage, consumer) == 192);
static_assert(offsetof(DoorbellPage, sweep) == 256);
static_assert(offsetof(DoorbellPage, entries) == 320);
static_assert(offsetof(DoorbellPage, cq_arm) == 320 + 4 * kDoorbellRingSize);
static_assert(offsetof(DoorbellPage, qp_pending) == 320 + 4 * kDoorbellRingSize + 4 * kMaxCqSlots);
static_assert(offsetof(DoorbellPage, qp_takes_sends) ==
              offsetof(DoorbellPage, qp_pending) + kMaxQpSlots);

}  // namespace rocemu
