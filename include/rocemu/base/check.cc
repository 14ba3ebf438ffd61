#include "rocemu/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace rocemu {

namespace {
CrashHook g_crash_hook = nullptr;
}

void set_crash_hook(CrashHook hook) { g_crash_hook = hook; }

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "rocemu: invariant broken: %s at %s:%d\n", expression, file, line);
  if (g_crash_hook != nullptr) g_crash_hook(expression, file, line);
  std::abort();
}

}  // namespace rocemu
