// Pool<T>: a fixed number of zeroed slots, handed out by index. Address space is taken at
// construction, pages only when a slot is first used; acquire and release are O(1) and never
// allocate. Indices, not pointers, are stored in objects, so that a pool can be moved or saved as
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include "rocemu/base/check.h"

namespace rocemu {

template <typename T>
requires std::is_trivially_copyable_v<T>
class Pool {
 public:
  /// `capacity`: number of slots, at most 2^32 - 3. Reaching it makes acquire() return nothing.
  /// Throws std::bad_alloc.
  explicit Pool(std::uint32_t capacity)
      : capacity_(capacity),
        slot_memory_(zeroed(std::size_t{capacity} * sizeof(T) + alignof(T))),
        next_memory_(zeroed(std::size_t{capacity} * sizeof(std::uint32_t))),
        slots_(align(slot_memory_.get())),
        next_(static_cast<std::uint32_t*>(next_memory_.get())) {}

  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t in_use() const { return in_use_; }

  /// A free slot, most recently released first; its contents are as they were left.
  std::optional<std::uint32_t> acquire() {
    std::uint32_t index = free_head_;
    if (index != kEnd) {
      free_head_ = next_[index];
    } else if (untouched_ < capacity_) {
      index = untouched_++;
    } else {
      return std::nullopt;
    }
    next_[index] = kTaken;
    ++in_use_;
    return index;
  }

  void release(std::uint32_t index) {
    ROCEMU_CHECK(is_live(index));
    next_[index] = free_head_;
    free_head_ = index;
    --in_use_;
  }

  bool is_live(std::uint32_t index) const { return index < untouched_ && next_[index] == kTaken; }
  /// Slots at or above this index were never used: the bound for a walk over all live slots.
  std::uint32_t high_water() const { return untouched_; }

  T& operator[](std::uint32_t index) { return slots_[index]; }
  const T& operator[](std::uint32_t index) const { return slots_[index]; }

 private:
  static constexpr std::uint32_t kEnd = 0xffff'ffff;
  static constexpr std::uint32_t kTaken = 0xffff'fffe;

  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Memory = std::unique_ptr<void, Free>;

  static Memory zeroed(std::size_t bytes) {
    void* p = std::calloc(1, bytes);
    if (p == nullptr) throw std::bad_alloc();
    return Memory(p);
  }
  static T* align(void* p) {
    std::size_t space = sizeof(T) + alignof(T);
    return static_cast<T*>(std::align(alignof(T), sizeof(T), p, space));
  }

  std::uint32_t capacity_;
  std::uint32_t in_use_ = 0;
  std::uint32_t untouched_ = 0;
  std::uint32_t free_head_ = kEnd;
  Memory slot_memory_;
  Memory next_memory_;
  T* slots_;
  std::uint32_t* next_;
};

}  // namespace rocemu
