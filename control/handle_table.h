// HandleTable<T>: objects of one kind in one context, named by small handles that the client passes
// around. A freed handle rests behind kResting others, so that a stale one rarely names a new
// object. The limit is an error that the client sees.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace rocemu::control {

template <typename T>
class HandleTable {
 public:
  explicit HandleTable(std::uint32_t limit) : limit_(limit) {}

  /// The handle that add() will give, or nothing at the limit.
  std::optional<std::uint32_t> next_handle() const {
    if (is_growing()) return static_cast<std::uint32_t>(slots_.size());
    if (freed_.empty()) return std::nullopt;
    return freed_.front();
  }
  /// Stores `object` under next_handle(), which must exist.
  T& add(T&& object) {
    ++count_;
    if (is_growing()) return *slots_.emplace_back(std::move(object));
    const std::uint32_t handle = freed_.front();
    freed_.pop_front();
    return slots_[handle].emplace(std::move(object));
  }
  /// Null for a handle that names nothing.
  T* find(std::uint32_t handle) {
    return handle < slots_.size() && slots_[handle] ? &*slots_[handle] : nullptr;
  }
  void remove(std::uint32_t handle) {
    slots_[handle].reset();
    freed_.push_back(handle);
    --count_;
  }
  std::uint32_t count() const { return count_; }

  /// Calls `visit(handle, object)` for all; it may remove the object that it is given.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (std::uint32_t handle = 0; handle < slots_.size(); ++handle) {
      if (slots_[handle]) visit(handle, *slots_[handle]);
    }
  }

 private:
  static constexpr std::size_t kResting = 64;
  bool is_growing() const { return slots_.size() < limit_ && freed_.size() <= kResting; }

  std::uint32_t limit_;
  std::uint32_t count_ = 0;
  std::deque<std::optional<T>> slots_;  ///< References stay valid while others are added.
  std::deque<std::uint32_t> freed_;
};

}  // namespace rocemu::control
