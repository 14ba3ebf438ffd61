// How an interposer is written. The C++ function has a name of its own and only its symbol is
// libc's: the C library's headers (exception specifications, nonnull attributes, inline wrappers)
// then never meet our definitions. `Next<F>` is the function that would have run without us: the
// next one in load order, so that other preloaded libraries (librspreload) keep working.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <type_traits>

/// Defines the exported symbol `symbol`; exports.map must list it too.
#define ROCEMU_INTERPOSE(result, symbol, ...)         \
  extern "C" __attribute__((visibility("default")))   \
  result shim_##symbol(__VA_ARGS__) __asm__(#symbol); \
  extern "C" __attribute__((visibility("default"))) result shim_##symbol(__VA_ARGS__)

namespace rocemu::shim {

/// The next definition of a symbol after this library's. Resolved at first use (interposers run
/// before our constructor does, from other libraries' constructors). Missing in this C library:
/// calls fail with ENOSYS.
template <typename F>
class Next {
 public:
  /// `version`: the symbol version to prefer, where dlsym alone would find an outdated one.
  explicit constexpr Next(const char* name, const char* version = nullptr)
      : name_(name), version_(version) {}

  template <typename... Args>
  auto operator()(Args... args) {
    using R = std::invoke_result_t<F*, Args...>;
    F* function = get();
    if (function != nullptr) return function(args...);
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<R>) {
      return static_cast<R>(nullptr);
    } else {
      return static_cast<R>(-1);
    }
  }

 private:
  F* get() {
    F* function = function_.load(std::memory_order_relaxed);  // any thread finds the same value
    return __builtin_expect(function != nullptr, 1) ? function : resolve();
  }

  [[gnu::noinline]] F* resolve() {
    const int saved = errno;
    void* found = version_ != nullptr ? dlvsym(RTLD_NEXT, name_, version_) : nullptr;
    if (found == nullptr) found = dlsym(RTLD_NEXT, name_);
    errno = saved;
    F* function = reinterpret_cast<F*>(found);
    function_.store(function, std::memory_order_relaxed);
    return function;
  }

  const char* name_;
  const char* version_;
  std::atomic<F*> function_{nullptr};
};

}  // namespace rocemu::shim
