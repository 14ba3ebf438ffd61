// ROCEMU_CHECK: a broken invariant of our own stops the process, in release builds too, after the
// crash hook had its chance to save the trace ring. Never for input: packets, client memory, files
// and API calls get an error or a counted drop.
#pragma once

namespace rocemu {

/// Called once before the process aborts; must be async-signal-safe. Null (the default) for none.
using CrashHook = void (*)(const char* expression, const char* file, int line);
void set_crash_hook(CrashHook hook);

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace rocemu

#define ROCEMU_CHECK(expression)                      \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? static_cast<void>(0)                         \
       : ::rocemu::check_failed(#expression, __FILE__, __LINE__))
