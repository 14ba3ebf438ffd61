// Process state and fork. A page that the kernel zeroes in forked children holds the owner's pid:
// zero there means "forked, not yet noticed", whichever call made the child (fork, _Fork, clone);
// another pid than getpid() means a vfork child. The atfork handler notices at once, which matters
// since a child that keeps the parent's sockets open would keep the parent's contexts alive.
#include "verbs_shim/runtime.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rocemu/abi/socket.h"
#include "verbs_shim/context.h"
#include "verbs_shim/poll_guard.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

struct Process {
  char directory[PATH_MAX];
  std::size_t directory_length;
  bool is_directory_explicit;
  bool is_quiet;
  std::atomic<bool> has_complained;
  std::atomic<std::atomic<pid_t>*> owner;  ///< In the page that children find zeroed.
};

constinit Process process{};
constinit pthread_once_t process_once = PTHREAD_ONCE_INIT;

void find_directory() {
  const char* chosen = secure_getenv(abi::kRuntimeDirVariable);
  const char* user_runtime = secure_getenv("XDG_RUNTIME_DIR");
  int length = 0;
  if (chosen != nullptr && chosen[0] != '\0') {
    process.is_directory_explicit = true;
    length = std::snprintf(process.directory, sizeof process.directory, "%s", chosen);
  } else if (geteuid() == 0) {
    length = std::snprintf(process.directory, sizeof process.directory, "/run/rocemu");
  } else if (user_runtime != nullptr && user_runtime[0] != '\0') {
    length = std::snprintf(process.directory, sizeof process.directory, "%s/rocemu", user_runtime);
  } else {
    length = std::snprintf(process.directory, sizeof process.directory, "/tmp/rocemu-%u",
                           static_cast<unsigned>(geteuid()));
  }
  process.directory_length =
      length > 0 && static_cast<std::size_t>(length) < sizeof process.directory
          ? static_cast<std::size_t>(length)
          : 0;
  while (process.directory_length > 1 && process.directory[process.directory_length - 1] == '/') {
    process.directory[--process.directory_length] = '\0';
  }
}

void before_fork() { lock_contexts_for_fork(); }
void after_fork_in_parent() { unlock_contexts_after_fork(); }
void after_fork_in_child() {
  unlock_contexts_after_fork();
  forget_polls_after_fork();
  // Also where the kernel could not be asked to zero it.
  process.owner.load(std::memory_order_acquire)->store(0, std::memory_order_relaxed);
  (void)is_owner();
}

void initialise() {
  find_directory();
  const char* quiet = secure_getenv("ROCEMU_QUIET");
  process.is_quiet = quiet != nullptr && quiet[0] == '1';

  static constinit std::atomic<pid_t> unprotected{0};
  std::atomic<pid_t>* owner = &unprotected;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    if (madvise(page, 4096, MADV_WIPEONFORK) == 0) {
      owner = static_cast<std::atomic<pid_t>*>(page);
    } else {
      munmap(page, 4096);
    }
  }
  owner->store(sys::getpid(), std::memory_order_relaxed);
  process.owner.store(owner, std::memory_order_release);  // pairs with the acquire in is_fork_seen
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

[[gnu::constructor]] void initialise_early() { pthread_once(&process_once, initialise); }

}  // namespace

const char* runtime_directory() {
  pthread_once(&process_once, initialise);
  return process.directory;
}

std::size_t runtime_directory_length() {
  pthread_once(&process_once, initialise);
  return process.directory_length;
}

bool is_runtime_directory_explicit() { return process.is_directory_explicit; }

bool is_owner() {
  pthread_once(&process_once, initialise);
  std::atomic<pid_t>& owner = *process.owner.load(std::memory_order_acquire);
  const pid_t self = sys::getpid();
  const pid_t recorded = owner.load(std::memory_order_relaxed);
  if (recorded == self) return true;
  if (recorded != 0) return false;
  drop_inherited_contexts();
  owner.store(self, std::memory_order_relaxed);
  return true;
}

bool is_fork_seen() {
  std::atomic<pid_t>* owner = process.owner.load(std::memory_order_acquire);
  return owner != nullptr && owner->load(std::memory_order_relaxed) != 0;
}

void complain(const char* text) {
  if (process.is_quiet) return;
  char line[PATH_MAX + 256];
  const int length = std::snprintf(line, sizeof line, "rocemu: %s\n", text);
  if (length <= 0) return;
  const std::size_t wanted = static_cast<std::size_t>(length);
  (void)sys::write(STDERR_FILENO, line, wanted < sizeof line ? wanted : sizeof line - 1);
}

void complain_no_daemon(int error) {
  if (process.has_complained.exchange(true, std::memory_order_relaxed)) return;
  char text[PATH_MAX + 192];
  if (error == EIO) {
    std::snprintf(text, sizeof text,
                  "the daemon at %s/%s closed the connection: it serves as many clients as it may "
                  "(max-clients), or it is ending",
                  runtime_directory(), abi::kSocketName);
  } else {
    std::snprintf(
        text, sizeof text,
        "no daemon at %s/%s (%s), so there are no emulated devices; start one with "
        "'rocemu up' or set %s",
        runtime_directory(), abi::kSocketName,
        error == EPROTO ? "it speaks another version of the protocol" : std::strerror(error),
        abi::kRuntimeDirVariable);
  }
  complain(text);
}

}  // namespace rocemu::shim
