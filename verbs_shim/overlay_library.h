// Functions of libibverbs that the overlay stands before.
#pragma once

#include <atomic>

namespace rocemu::shim {

/// libibverbs' own `name` (version IBVERBS_1.1), also when the library is in a scope that RTLD_NEXT
/// does not search: a Python module's dependencies. Null without the library; leaves errno alone.
void* find_in_libibverbs(const char* name);

/// One of them, looked for at its first use. Null when it is not there.
template <typename F>
class LibraryFunction {
 public:
  explicit constexpr LibraryFunction(const char* name) : name_(name) {}

  F* get() {
    F* function = function_.load(std::memory_order_relaxed);  // any thread finds the same value
    if (function == nullptr) {
      function = reinterpret_cast<F*>(find_in_libibverbs(name_));
      function_.store(function, std::memory_order_relaxed);
    }
    return function;
  }

 private:
  const char* name_;
  std::atomic<F*> function_{nullptr};
};

}  // namespace rocemu::shim
