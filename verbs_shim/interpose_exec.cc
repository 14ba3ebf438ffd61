// execve and its relatives. Before the process's image is replaced, the daemon must let go of the
// old one: a late RDMA WRITE would land in the new program. Only a process with live contexts asks;
// children (fork: no live contexts; vfork: not the owner) exec natively.
#include <unistd.h>

#include <cstdarg>

#include "verbs_shim/context.h"
#include "verbs_shim/export.h"
#include "verbs_shim/rpc.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

using Vector = char* const*;

constinit Next<int(const char*, Vector, Vector)> next_execve{"execve"};
constinit Next<int(const char*, Vector)> next_execv{"execv"};
constinit Next<int(const char*, Vector)> next_execvp{"execvp"};
constinit Next<int(const char*, Vector, Vector)> next_execvpe{"execvpe"};
constinit Next<int(int, Vector, Vector)> next_fexecve{"fexecve"};
constinit Next<int(int, const char*, Vector, Vector, int)> next_execveat{"execveat"};

int tell(Connection& connection, abi::MessageType type) {
  std::byte buffer[sizeof(abi::MessageHeader) + 64];
  Reply reply;
  const int error = call(connection, type, {}, buffer, reply);
  close_fds(reply);
  return error;
}

// Announces, executes, and takes the announcement back if execution failed. The connection ends
// with the old image: it is close-on-exec.
template <typename Execute>
int announced(Execute execute) {
  if (live_context_count() == 0 || !is_owner()) return execute();
  Connection connection;
  {
    const sys::SignalGuard guard;
    if (connect_daemon(connection) == 0) (void)tell(connection, abi::MessageType::kExecNotice);
  }
  const int result = execute();
  const int saved = errno;
  {
    const sys::SignalGuard guard;
    (void)tell(connection, abi::MessageType::kExecFailed);
    disconnect(connection);
  }
  errno = saved;
  return result;
}

// Arguments of the list forms, the terminating null included.
std::size_t count_arguments(va_list arguments) {
  std::size_t count = 1;  // the first one, which is named
  while (va_arg(arguments, char*) != nullptr) ++count;
  return count + 1;
}

}  // namespace
}  // namespace rocemu::shim

namespace shim = rocemu::shim;

// Collects a list form's arguments into `vector` on the stack (no allocation: this may be a child
// of a threaded process). `list` stands behind the terminating null afterwards.
#define ROCEMU_COLLECT(first)                                                   \
  va_list list;                                                                 \
  va_start(list, first);                                                        \
  const std::size_t count = first == nullptr ? 1 : shim::count_arguments(list); \
  va_end(list);                                                                 \
  char** vector = static_cast<char**>(__builtin_alloca(count * sizeof(char*))); \
  vector[0] = const_cast<char*>(first);                                         \
  va_start(list, first);                                                        \
  for (std::size_t i = 1; i < count; ++i) vector[i] = va_arg(list, char*);

ROCEMU_INTERPOSE(int, execve, const char* path, shim::Vector arguments, shim::Vector environment) {
  return shim::announced([=] { return shim::next_execve(path, arguments, environment); });
}
ROCEMU_INTERPOSE(int, execv, const char* path, shim::Vector arguments) {
  return shim::announced([=] { return shim::next_execv(path, arguments); });
}
ROCEMU_INTERPOSE(int, execvp, const char* file, shim::Vector arguments) {
  return shim::announced([=] { return shim::next_execvp(file, arguments); });
}
ROCEMU_INTERPOSE(int, execvpe, const char* file, shim::Vector arguments, shim::Vector environment) {
  return shim::announced([=] { return shim::next_execvpe(file, arguments, environment); });
}
ROCEMU_INTERPOSE(int, fexecve, int fd, shim::Vector arguments, shim::Vector environment) {
  return shim::announced([=] { return shim::next_fexecve(fd, arguments, environment); });
}
ROCEMU_INTERPOSE(int, execveat, int fd, const char* path, shim::Vector arguments,
                 shim::Vector environment, int flags) {
  return shim::announced(
      [=] { return shim::next_execveat(fd, path, arguments, environment, flags); });
}
ROCEMU_INTERPOSE(int, execl, const char* path, const char* first, ...) {
  ROCEMU_COLLECT(first)
  va_end(list);
  return shim::announced([=] { return shim::next_execv(path, vector); });
}
ROCEMU_INTERPOSE(int, execlp, const char* file, const char* first, ...) {
  ROCEMU_COLLECT(first)
  va_end(list);
  return shim::announced([=] { return shim::next_execvp(file, vector); });
}
ROCEMU_INTERPOSE(int, execle, const char* path, const char* first, ...) {
  ROCEMU_COLLECT(first)
  shim::Vector environment = va_arg(list, char**);
  va_end(list);
  return shim::announced([=] { return shim::next_execve(path, vector, environment); });
}
