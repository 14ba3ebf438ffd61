// What the shim knows about its process: the run-time directory, whether messages are wanted, and
// whether the caller is the process that owns the shim's state. A child of fork() has a copy of
// that state and must drop it; a child of vfork() shares the parent's memory and must not touch it
// at all. Any thread may call everything here.
#pragma once

#include <limits.h>

#include <cstddef>

namespace rocemu::shim {

/// The run-time directory (include/rocemu/abi/socket.h), without a trailing slash.
const char* runtime_directory();
std::size_t runtime_directory_length();
/// True when ROCEMU_RUNTIME_DIR named the directory: the user chose the daemon, whoever runs it.
bool is_runtime_directory_explicit();

/// True in the process whose state this is. False in a child of vfork(): there, only native calls
/// are safe. A child of fork() becomes an owner here, of contexts that no longer work.
bool is_owner();

/// False in a forked child before it dropped the parent's state; one load, for the doorbell path.
bool is_fork_seen();

/// Prints "rocemu: <text>" to stderr unless ROCEMU_QUIET=1.
void complain(const char* text);

/// Prints, once a process, why there is no daemon at the run-time directory.
void complain_no_daemon(int error);

}  // namespace rocemu::shim
