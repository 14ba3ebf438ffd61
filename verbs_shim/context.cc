// Opening, sharing and ending contexts. The table lock guards slots and counts and is never held
// while the daemon is asked; a context's own lock guards its connection. Both are taken with
// signals blocked, since handlers may open and close descriptors too.
#include "verbs_shim/context.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"

namespace rocemu::shim {
namespace {

constinit Context contexts[kMaxContexts]{};
constinit pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
std::uint32_t used_slots = 0;  // slots ever taken, the first ones; table lock
sigset_t mask_before_fork;     // table lock
constinit std::atomic<std::uint32_t> live_count{0};

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  sys::SignalGuard guard_;  // before the lock, released after it
  pthread_mutex_t& mutex_;
};

std::uint32_t index_of(const Context& context) {
  return static_cast<std::uint32_t>(&context - contexts);
}

std::span<Context> used_contexts() {
  const Locked locked(table_lock);
  return std::span(contexts).first(used_slots);
}

Context* take_slot() {
  const Locked locked(table_lock);
  for (Context& context : contexts) {
    if (context.state.load(std::memory_order_acquire) != ContextState::kFree) continue;
    used_slots = std::max(used_slots, index_of(context) + 1);
    context.state.store(ContextState::kOpening, std::memory_order_relaxed);
    context.fd_count = 0;
    context.lock = PTHREAD_MUTEX_INITIALIZER;
    context.connection = Connection{};
    context.shard_count = 0;
    return &context;
  }
  return nullptr;
}

bool has_buffers(Context& context) {
  if (context.buffers != nullptr) return true;
  void* memory = mmap(nullptr, 2 * abi::kMaxMessageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  context.buffers = static_cast<std::byte*>(memory);
  return true;
}

// Address space for the doorbells; kept with the slot, taken anew only when a daemon came with
// another geometry.
bool reserve_doorbells(Context& context, std::uint32_t shard_count, std::size_t stride) {
  if (context.doorbells != nullptr && context.doorbell_stride == stride &&
      context.doorbell_capacity >= shard_count) {
    return true;
  }
  void* memory = mmap(nullptr, stride * shard_count, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  context.doorbells = static_cast<std::byte*>(memory);
  context.doorbell_stride = stride;
  context.doorbell_capacity = shard_count;
  return true;
}

void blank_doorbells(Context& context) {
  (void)mmap(context.doorbells, context.doorbell_stride * context.shard_count,
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0);
}

bool is_as_large(int fd, std::uint64_t bytes) {
  struct stat status {};
  if (sys::fstat(fd, &status) != 0) return false;
  return status.st_size >= 0 && static_cast<std::uint64_t>(status.st_size) >= bytes;
}

int map_doorbell(Context& context, std::uint32_t shard, int fd) {
  if (!is_as_large(fd, context.doorbell_stride)) return EIO;
  void* where = context.doorbells + shard * context.doorbell_stride;
  if (mmap(where, context.doorbell_stride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    return errno;
  }
  const DoorbellPage& page = context.doorbell(shard);
  return page.magic == kDoorbellMagic && page.version == kDoorbellVersion ? 0 : EIO;
}

// Takes the shards' descriptors out of the reply. Returns 0 or an errno; what it took so far is
// undone by end_context.
int adopt_shards(Context& context, const abi::OpenDeviceReply& opened, Reply& reply) {
  for (auto& wake_fd : context.wake_fds) wake_fd.store(-1, std::memory_order_relaxed);
  if (!reserve_doorbells(context, opened.shard_count, opened.doorbell_bytes)) return ENOMEM;
  context.shard_count = opened.shard_count;
  for (std::uint32_t shard = 0; shard < opened.shard_count; ++shard) {
    const int error = map_doorbell(context, shard, reply.fds[1 + 2 * shard]);
    if (error != 0) return error;
    const int wake_fd = hide_fd(reply.fds[2 + 2 * shard]);
    const int hide_error = errno;
    reply.fds[2 + 2 * shard] = -1;
    if (wake_fd < 0) return hide_error;
    context.wake_fds[shard].store(wake_fd, std::memory_order_relaxed);
  }
  return 0;
}

bool is_sound(const abi::OpenDeviceReply& opened, const Reply& reply) {
  if (opened.shard_count == 0 || opened.shard_count > kMaxContextShards) return false;
  if (reply.fd_count != 1 + 2 * std::size_t{opened.shard_count}) return false;
  if (opened.doorbell_bytes < sizeof(DoorbellPage)) return false;
  if (opened.doorbell_bytes > 2 * sizeof(DoorbellPage)) return false;
  return opened.doorbell_bytes % 4096 == 0 && is_as_large(reply.fds[0], opened.context_bytes);
}

// Asks the daemon for a context. On success `fd` is the application's descriptor.
int ask_for_context(Context& context, std::uint32_t device_index, int& fd) {
  int error = connect_daemon(context.connection);
  if (error != 0) return error;
  // Where the kernel restricts who may look into a process (Yama), the daemon may.
  const pid_t daemon = daemon_pid(context.connection);
  if (daemon > 0) (void)prctl(PR_SET_PTRACER, daemon, 0, 0, 0);

  const abi::OpenDeviceRequest request{device_index, 0};
  std::byte buffer[sizeof(abi::MessageHeader) + sizeof(abi::OpenDeviceReply)];
  Reply reply;
  error = call(context.connection, abi::MessageType::kOpenDevice,
               std::as_bytes(std::span(&request, 1)), buffer, reply);
  if (error != 0) return error;
  abi::OpenDeviceReply opened{};
  if (reply.is_fd_lost) {
    error = EMFILE;
  } else if (reply.payload.size() != sizeof opened) {
    error = EIO;
  } else {
    std::memcpy(&opened, reply.payload.data(), sizeof opened);
    error = is_sound(opened, reply) ? adopt_shards(context, opened, reply) : EIO;
  }
  if (error == 0) {
    fd = reply.fds[0];
    reply.fds[0] = -1;
  }
  close_fds(reply);
  return error;
}

void end_context(Context& context) {
  {
    const Locked locked(context.lock);
    disconnect_and_wait(context.connection);
    for (std::uint32_t shard = 0; shard < context.shard_count; ++shard) {
      close_hidden_fd(context.wake_fds[shard].exchange(-1, std::memory_order_relaxed));
    }
    if (context.shard_count != 0) blank_doorbells(context);
  }
  context.state.store(ContextState::kFree, std::memory_order_release);
}

int publish(Context& context, int fd, int flags) {
  struct stat status {};
  if (sys::fstat(fd, &status) != 0) return errno;
  context.device = status.st_dev;
  context.inode = status.st_ino;
  if ((flags & O_CLOEXEC) == 0 && sys::fcntl(fd, F_SETFD, 0) != 0) return errno;
  context.fd_count = 1;
  context.state.store(ContextState::kLive, std::memory_order_release);
  live_count.fetch_add(1, std::memory_order_relaxed);
  return set_fd(fd, {FdKind::kContext, index_of(context), 0}) ? 0 : EMFILE;
}

}  // namespace

Context& context_at(std::uint32_t index) { return contexts[index % kMaxContexts]; }

std::uint32_t live_context_count() { return live_count.load(std::memory_order_relaxed); }

int open_context(std::uint32_t device_index, int flags) {
  if (!is_owner()) {
    errno = EAGAIN;  // a vfork child: a context would be the parent's
    return -1;
  }
  const sys::SignalGuard guard;
  Context* context = take_slot();
  if (context == nullptr) {
    errno = EMFILE;
    return -1;
  }
  int fd = -1;
  int error = has_buffers(*context) ? ask_for_context(*context, device_index, fd) : ENOMEM;
  if (error == 0) {
    context->device_index = device_index;
    error = publish(*context, fd, flags);
    if (error == 0) return fd;
    if (context->state.load(std::memory_order_relaxed) == ContextState::kLive) {
      live_count.fetch_sub(1, std::memory_order_relaxed);
    }
    sys::close(fd);
  }
  end_context(*context);
  errno = error;
  return -1;
}

void note_duplicate(int from, int to) {
  if (from == to || !is_owner()) return;
  const FdEntry was = take_fd(to);
  const FdEntry now = fd_entry(from);
  if (now.kind == FdKind::kContext) {
    const Locked locked(table_lock);
    ++contexts[now.context].fd_count;
  }
  if (now.kind != FdKind::kOrdinary && now.kind != FdKind::kInternal) (void)set_fd(to, now);
  release_entry(was);
}

void release_entry(const FdEntry& entry) {
  if (entry.kind != FdKind::kContext) return;
  Context& context = contexts[entry.context];
  bool was_live = false;
  {
    const Locked locked(table_lock);
    if (context.fd_count == 0 || --context.fd_count != 0) return;
    was_live = context.state.load(std::memory_order_relaxed) == ContextState::kLive;
  }
  if (was_live) live_count.fetch_sub(1, std::memory_order_relaxed);
  end_context(context);
}

bool vacate_hidden_fd(int fd) {
  for (Context& context : used_contexts()) {
    if (context.state.load(std::memory_order_acquire) != ContextState::kLive) continue;
    const Locked locked(context.lock);
    if (context.connection.fd == fd) {
      const int moved = hide_fd(sys::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (moved < 0) return false;
      context.connection.fd = moved;
      return true;
    }
    for (std::uint32_t shard = 0; shard < context.shard_count; ++shard) {
      if (context.wake_fds[shard].load(std::memory_order_relaxed) != fd) continue;
      const int moved = hide_fd(sys::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (moved < 0) return false;
      context.wake_fds[shard].store(moved, std::memory_order_relaxed);
      return true;
    }
  }
  return true;
}

void lock_contexts_for_fork() {
  sigset_t mask;
  sys::block_signals(mask);
  pthread_mutex_lock(&table_lock);
  mask_before_fork = mask;
}

void unlock_contexts_after_fork() {
  const sigset_t mask = mask_before_fork;
  pthread_mutex_unlock(&table_lock);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void drop_inherited_contexts() {
  table_lock = PTHREAD_MUTEX_INITIALIZER;  // held by nobody who exists in this process
  for (Context& context : used_contexts()) {
    const ContextState state = context.state.load(std::memory_order_relaxed);
    if (state == ContextState::kFree || state == ContextState::kInherited) continue;
    context.lock = PTHREAD_MUTEX_INITIALIZER;  // as above
    disconnect(context.connection);
    for (std::uint32_t shard = 0; shard < context.shard_count; ++shard) {
      close_hidden_fd(context.wake_fds[shard].exchange(-1, std::memory_order_relaxed));
    }
    if (context.shard_count != 0) blank_doorbells(context);
    context.state.store(
        state == ContextState::kLive ? ContextState::kInherited : ContextState::kFree,
        std::memory_order_relaxed);
  }
  live_count.store(0, std::memory_order_relaxed);
}

}  // namespace rocemu::shim
