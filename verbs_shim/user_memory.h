// Stores at pointers that the application gave inside a command. The kernel answers EFAULT for a
// bad one; so do we, by letting the kernel do the store.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "verbs_shim/sys.h"

namespace rocemu::shim {

/// Returns 0 or EFAULT.
inline int copy_to_user(std::uint64_t address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  void* target = reinterpret_cast<void*>(address);
  const iovec from{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const iovec to{target, bytes.size()};
  const long stored = ::syscall(SYS_process_vm_writev, sys::getpid(), &from, 1, &to, 1, 0);
  if (stored == static_cast<long>(bytes.size())) return 0;
  if (stored >= 0 || errno == EFAULT) return EFAULT;
  std::memcpy(target, bytes.data(), bytes.size());  // a seccomp filter refuses the call
  return 0;
}

}  // namespace rocemu::shim
