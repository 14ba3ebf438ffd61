// SpscRing<T>: the one hand-off between two threads of the daemon: one producer, one consumer,
// fixed power-of-two capacity, no locks. Full and empty are answers, not errors.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "rocemu/base/check.h"

namespace rocemu {

template <typename T>
class SpscRing {
 public:
  /// `capacity`: a power of two.
  explicit SpscRing(std::uint32_t capacity) : mask_(capacity - 1), slots_(new T[capacity]()) {
    ROCEMU_CHECK(std::has_single_bit(capacity));
  }

  /// Producer thread. False when full; `value` is then untouched.
  bool try_push(T&& value) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);  // own index
    const std::uint32_t head =
        head_.load(std::memory_order_acquire);  // pairs with try_pop's release
    if (tail - head > mask_) return false;
    slots_[tail & mask_] = std::move(value);
    tail_.store(tail + 1, std::memory_order_release);  // pairs with try_pop's acquire
    return true;
  }

  /// Consumer thread. Nothing when empty.
  std::optional<T> try_pop() {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);  // own index
    const std::uint32_t tail =
        tail_.load(std::memory_order_acquire);  // pairs with try_push's release
    if (head == tail) return std::nullopt;
    std::optional<T> value(std::move(slots_[head & mask_]));
    head_.store(head + 1, std::memory_order_release);  // pairs with try_push's acquire
    return value;
  }

  /// Any thread; exact only on the consumer's.
  bool is_empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::uint32_t mask_;
  std::unique_ptr<T[]> slots_;
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
};

}  // namespace rocemu
