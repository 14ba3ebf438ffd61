// write() on an emulated uverbs device: the kernel's legacy command ABI (ib_user_verbs.h).
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace rocemu::shim {

/// One command of `count` bytes on a descriptor marked kContext. As write(): `count`, or -1 with
/// errno. EIO when the daemon is gone or the context belongs to a parent process.
ssize_t write_command(int fd, const void* bytes, std::size_t count);

}  // namespace rocemu::shim
