#include "dataplane/dpdk/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>

namespace rocemu::dpdk {
namespace {

constexpr std::size_t kMaxRanges = 16384;
constexpr std::uintptr_t kPageMask = 4095;

struct Range {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::uintptr_t> end{0};
  std::atomic<std::uint32_t> owner{0};
  std::atomic<bool> is_faulted{false};
};

std::array<Range, kMaxRanges> g_ranges;
std::atomic<std::size_t> g_used{0};
std::atomic<std::uint64_t> g_faults{0};

void on_sigbus(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Range& range = g_ranges[i];
    const std::uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= range.end.load(std::memory_order_relaxed)) {
      continue;
    }
    void* page = reinterpret_cast<void*>(address & ~kPageMask);
    if (::mmap(page, kPageMask + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) == MAP_FAILED) {
      break;
    }
    range.is_faulted.store(true, std::memory_order_release);
    g_faults.fetch_add(1, std::memory_order_release);
    return;
  }
  ::signal(SIGBUS, SIG_DFL);  // the access is repeated and ends the process
}

void install_handler() {
  static const bool is_installed = [] {
    struct sigaction action {};
    action.sa_sigaction = &on_sigbus;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  (void)is_installed;
}

}  // namespace

bool guard_range(std::span<std::byte> range, std::uint32_t owner) {
  install_handler();
  for (std::size_t i = 0; i < kMaxRanges; ++i) {
    Range& slot = g_ranges[i];
    if (slot.begin.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
    slot.owner.store(owner, std::memory_order_relaxed);
    slot.is_faulted.store(false, std::memory_order_relaxed);
    slot.end.store(begin + range.size(), std::memory_order_relaxed);
    slot.begin.store(begin, std::memory_order_release);  // pairs with the handler's acquire
    if (i >= g_used.load(std::memory_order_relaxed)) {
      g_used.store(i + 1, std::memory_order_release);
    }
    return true;
  }
  return false;
}

void unguard_ranges(std::uint32_t owner) {
  const std::size_t used = g_used.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i) {
    Range& range = g_ranges[i];
    if (range.begin.load(std::memory_order_relaxed) != 0 &&
        range.owner.load(std::memory_order_relaxed) == owner) {
      range.begin.store(0, std::memory_order_release);
    }
  }
}

std::uint64_t fault_count() { return g_faults.load(std::memory_order_acquire); }

bool is_faulted(std::uint32_t owner) {
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    const Range& range = g_ranges[i];
    if (range.begin.load(std::memory_order_relaxed) != 0 &&
        range.owner.load(std::memory_order_relaxed) == owner &&
        range.is_faulted.load(std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

}  // namespace rocemu::dpdk
