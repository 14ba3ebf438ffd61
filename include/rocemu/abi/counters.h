// The counters file: what the daemon writes and every tool may map read-only, without asking the
// daemon. Values and metadata are apart: names come from the .def files, values stand in one block
// a device and shard. One writer a block (the shard's worker), any number of readers; a reader sees
// each 64-bit value whole, and different values at slightly different times.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace rocemu {

enum class DropReason : std::uint8_t {
#define ROCEMU_DROP_REASON(name, text) name,
#include "rocemu/abi/drop_reasons.def"
#undef ROCEMU_DROP_REASON
  kCount,
  none = kCount,  ///< Accepted.
};

enum class Counter : std::uint16_t {
#define ROCEMU_COUNTER(name, kind, text) name,
#include "rocemu/abi/counters.def"
#undef ROCEMU_COUNTER
  kCount
};

enum class CounterKind : std::uint8_t { kPort, kHw, kInternal, kDrop };

inline constexpr std::size_t kCounterCount =
    static_cast<std::size_t>(Counter::kCount) + static_cast<std::size_t>(DropReason::kCount);

struct CounterInfo {
  std::string_view name;
  CounterKind kind;
  std::string_view text;
};

/// Metadata by index: the counters in order, then one drop_<reason> a drop reason.
inline constexpr std::array<CounterInfo, kCounterCount> kCounterInfo = {{
#define ROCEMU_COUNTER(name, kind, text) {#name, CounterKind::kind, text},
#include "rocemu/abi/counters.def"
#undef ROCEMU_COUNTER
#define ROCEMU_DROP_REASON(name, text) {"drop_" #name, CounterKind::kDrop, text},
#include "rocemu/abi/drop_reasons.def"
#undef ROCEMU_DROP_REASON
}};

/// One device's counters on one shard. Written by that shard's worker only.
struct alignas(64) CounterBlock {
  std::array<std::uint64_t, kCounterCount> values{};

  void add(Counter counter, std::uint64_t n = 1) { add_at(static_cast<std::size_t>(counter), n); }
  void add(DropReason reason, std::uint64_t n = 1) {
    add_at(static_cast<std::size_t>(Counter::kCount) + static_cast<std::size_t>(reason), n);
  }
  std::uint64_t get(Counter counter) const { return get_at(static_cast<std::size_t>(counter)); }
  std::uint64_t get(DropReason reason) const {
    return get_at(static_cast<std::size_t>(Counter::kCount) + static_cast<std::size_t>(reason));
  }
  std::uint64_t get_at(std::size_t index) const {
    return __atomic_load_n(&values[index], __ATOMIC_RELAXED);
  }

 private:
  void add_at(std::size_t index, std::uint64_t n) {
    // One writer: a plain read of its own value, a whole store for the readers of other processes.
    __atomic_store_n(&values[index], values[index] + n, __ATOMIC_RELAXED);
  }
};

/// Loop statistics of one worker; written by it only. Times in nanoseconds.
struct alignas(64) WorkerBlock {
  std::uint64_t turns = 0;
  std::uint64_t idle_turns = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t wakeups_sent = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t max_turn_ns = 0;
  std::uint64_t system_calls = 0;
  std::uint64_t reserved = 0;
};

inline constexpr std::uint32_t kCountersMagic = 0x524f4355;  // "ROCU"
inline constexpr std::uint32_t kCountersVersion = 1;
inline constexpr std::uint32_t kMaxDevices = 64;
inline constexpr std::uint32_t kMaxShards = 16;

/// Start of the file. Blocks follow at `blocks_offset`: device-major, `shard_count` blocks a
/// device. `magic` is written last.
struct alignas(64) CountersHeader {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t counter_count = 0;
  std::uint32_t device_count = 0;
  std::uint32_t shard_count = 0;
  std::uint32_t block_bytes = 0;
  std::uint64_t blocks_offset = 0;
  std::int64_t daemon_pid = 0;
  std::int64_t started_unix_ns = 0;
  char device_names[kMaxDevices][32] = {};
  WorkerBlock workers[kMaxShards] = {};
};

}  // namespace rocemu
