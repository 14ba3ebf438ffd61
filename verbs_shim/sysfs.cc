// A counter is read once a open: the daemon's text in an anonymous file, as the kernel fills a
// sysfs buffer at the first read. One short connection a read; no state stays behind.
#include "verbs_shim/sysfs.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "verbs_shim/rpc.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;  // one page, as in the kernel

int text_to_file(std::span<const std::byte> text, int flags, int& fd) {
  fd = sys::memfd_create("rocemu-counter", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (fd < 0) return errno;
  const bool is_whole =
      sys::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (is_whole && ::lseek(fd, 0, SEEK_SET) == 0) return 0;
  sys::close(fd);
  return EIO;
}

}  // namespace

int open_counter(const char* attribute, int flags) {
  const sys::SignalGuard guard;
  Connection connection;
  std::byte buffer[sizeof(abi::MessageHeader) + kMaxTextBytes];
  Reply reply;
  int fd = -1;
  int error = connect_daemon(connection);
  if (error == 0) {
    error = call(connection, abi::MessageType::kReadSysfs,
                 std::as_bytes(std::span(attribute, std::strlen(attribute))), buffer, reply);
    close_fds(reply);
  }
  if (error == 0) error = text_to_file(reply.payload, flags, fd);
  disconnect(connection);
  if (error == 0) return fd;
  errno = error;
  return -1;
}

}  // namespace rocemu::shim
