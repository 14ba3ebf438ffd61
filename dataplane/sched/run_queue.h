// Round robin over those who have something to send: a queue of owner indices in which each stands
// at most once (its owner keeps the flag), so capacity is the number of owners and push never
// fails.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>

namespace rocemu::sched {

class RunQueue {
 public:
  explicit RunQueue(std::uint32_t owners)
      : mask_(std::bit_ceil(owners) - 1),
        slots_(static_cast<std::uint32_t*>(
            std::calloc(std::size_t{mask_} + 1, sizeof(std::uint32_t)))) {
    if (slots_ == nullptr) throw std::bad_alloc();
  }

  bool is_empty() const { return head_ == tail_; }
  std::uint32_t size() const { return tail_ - head_; }
  void push(std::uint32_t owner) { slots_.get()[tail_++ & mask_] = owner; }
  std::optional<std::uint32_t> pop() {
    if (is_empty()) return std::nullopt;
    return slots_.get()[head_++ & mask_];
  }

  /// Takes an owner out wherever it stands: linear, for owners that end.
  void remove(std::uint32_t owner) {
    std::uint32_t kept = head_;
    for (std::uint32_t i = head_; i != tail_; ++i) {
      const std::uint32_t other = slots_.get()[i & mask_];
      if (other != owner) slots_.get()[kept++ & mask_] = other;
    }
    tail_ = kept;
  }

 private:
  struct Free {
    void operator()(std::uint32_t* p) const { std::free(p); }
  };
  std::uint32_t mask_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::unique_ptr<std::uint32_t, Free> slots_;
};

}  // namespace rocemu::sched
