// The two commands of the data path (POST_SEND as librxe's doorbell, REQ_NOTIFY_CQ) are served by
// shared memory alone; every other command goes to the daemon as it is, but for what only this
// process can translate: descriptors and pointers. Bytes of the application's command are read
// within the count it gave, copied once, and the copy is used.
#include "verbs_shim/commands.h"

#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstring>

#include "rocemu/abi/socket.h"
#include "rocemu/base/bytes.h"
#include "verbs_shim/context.h"
#include "verbs_shim/doorbell.h"
#include "verbs_shim/runtime.h"
#include "verbs_shim/sys.h"
#include "verbs_shim/user_memory.h"

namespace rocemu::shim {
namespace {

constexpr std::size_t kHeaderBytes = sizeof(ib_uverbs_cmd_hdr);
constexpr std::size_t kPostSendBytes = kHeaderBytes + sizeof(ib_uverbs_post_send);
constexpr std::size_t kReqNotifyBytes = kHeaderBytes + sizeof(ib_uverbs_req_notify_cq);
constexpr std::size_t kExHeaderBytes = kHeaderBytes + sizeof(ib_uverbs_ex_cmd_hdr);

enum class Fast { kNot, kDone, kInvalid };

Fast try_post_send(Context& context, const std::byte* bytes, std::size_t count) {
  if (count != kPostSendBytes) return Fast::kNot;
  const auto post = load<ib_uverbs_post_send>(bytes + kHeaderBytes);
  if (post.wr_count != 0) return Fast::kNot;  // work requests by value: the daemon's to refuse
  const std::uint32_t shard = handle_shard(post.qp_handle);
  const std::uint32_t slot = handle_slot(post.qp_handle);
  if (shard >= context.shard_count || slot >= kMaxQpSlots) return Fast::kInvalid;
  DoorbellPage& page = context.doorbell(shard);
  // As the kernel: the work request stays in the ring, and the application is told (10.3.1).
  if (page.qp_takes_sends[slot].load(std::memory_order_relaxed) == 0) return Fast::kInvalid;
  ring_qp(page, context.wake_fds[shard].load(std::memory_order_relaxed), slot);
  return Fast::kDone;
}

Fast try_req_notify(Context& context, const std::byte* bytes, std::size_t count) {
  if (count != kReqNotifyBytes) return Fast::kNot;
  const auto notify = load<ib_uverbs_req_notify_cq>(bytes + kHeaderBytes);
  const std::uint32_t shard = handle_shard(notify.cq_handle);
  const std::uint32_t slot = handle_slot(notify.cq_handle);
  if (shard >= context.shard_count || slot >= kMaxCqSlots) return Fast::kInvalid;
  arm_cq(context.doorbell(shard), context.wake_fds[shard].load(std::memory_order_relaxed), slot,
         notify.solicited_only != 0 ? kArmedSolicited : kArmedAny);
  return Fast::kDone;
}

// Where the answer goes: the command's response pointer and the room that it promises.
struct ResponseTarget {
  std::uint64_t address = 0;
  std::size_t capacity = 0;
};

ResponseTarget response_target(std::span<const std::byte> command) {
  const auto header = load<ib_uverbs_cmd_hdr>(command.data());
  if ((header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0) {
    if (command.size() < kExHeaderBytes) return {};
    const auto ex = load<ib_uverbs_ex_cmd_hdr>(command.data() + kHeaderBytes);
    return {ex.response, (std::size_t{header.out_words} + ex.provider_out_words) * 8};
  }
  if (header.out_words == 0 || command.size() < kHeaderBytes + 8) return {};
  return {load<std::uint64_t>(command.data() + kHeaderBytes), std::size_t{header.out_words} * 4};
}

// Offset of the completion channel's descriptor in a command that names one; 0 when it names none.
std::size_t channel_offset(std::uint32_t command) {
  if (command == IB_USER_VERBS_CMD_CREATE_CQ) {
    return kHeaderBytes + offsetof(ib_uverbs_create_cq, comp_channel);
  }
  if (command == (IB_USER_VERBS_EX_CMD_CREATE_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED)) {
    return kExHeaderBytes + offsetof(ib_uverbs_ex_create_cq, comp_channel);
  }
  return 0;
}

// Replaces the channel's descriptor by the daemon's handle. Returns 0 or EBADF.
int translate_channel(std::span<std::byte> command, std::uint32_t context_index) {
  const std::size_t offset = channel_offset(load<std::uint32_t>(command.data()));
  if (offset == 0 || command.size() < offset + sizeof(std::int32_t)) return 0;
  const auto fd = load<std::int32_t>(command.data() + offset);
  if (fd < 0) return 0;
  const FdEntry channel = fd_entry(fd);
  if (channel.kind != FdKind::kChannel || channel.context != context_index) return EBADF;
  store(command.data() + offset, channel.handle);
  return 0;
}

// Is `address` among the words of the command? Patches may go nowhere else.
bool is_named_by(std::span<const std::byte> command, std::uint64_t address) {
  for (std::size_t at = kHeaderBytes; at + 8 <= command.size(); at += 4) {
    if (load<std::uint64_t>(command.data() + at) == address) return true;
  }
  return false;
}

int apply_patches(std::span<const std::byte> command, std::span<const std::byte> bytes,
                  std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (bytes.size() < sizeof(abi::Patch)) return EIO;
    const auto patch = load<abi::Patch>(bytes.data());
    bytes = bytes.subspan(sizeof(abi::Patch));
    const std::size_t padded = (std::size_t{patch.length} + 7) / 8 * 8;
    if (bytes.size() < padded || !is_named_by(command, patch.address)) return EIO;
    const int error = copy_to_user(patch.address, bytes.first(patch.length));
    if (error != 0) return error;
    bytes = bytes.subspan(padded);
  }
  return bytes.empty() ? 0 : EIO;
}

// Puts the descriptor that came with the reply into the response. Returns 0 or an errno.
int install_fd(const abi::CommandReply& head, std::span<std::byte> response, const Reply& reply) {
  if (head.fd_offset == abi::kNoFd) return reply.fd_count == 0 ? 0 : EIO;
  if (reply.is_fd_lost) return EMFILE;
  if (reply.fd_count != 1) return EIO;
  if (head.fd_offset > response.size() || response.size() - head.fd_offset < sizeof(int)) {
    return EIO;
  }
  store(response.data() + head.fd_offset, reply.fds[0]);
  return 0;
}

// Carries out what the daemon answered. Returns 0 or an errno; the reply's descriptors are the
// application's only when it is 0.
int finish(std::uint32_t context_index, std::span<const std::byte> command, const Reply& reply) {
  if (reply.payload.size() < sizeof(abi::CommandReply)) return EIO;
  const auto head = load<abi::CommandReply>(reply.payload.data());
  const std::span<std::byte> rest = reply.payload.subspan(sizeof head);
  const ResponseTarget target = response_target(command);
  if (head.written != command.size()) return EIO;
  if (head.response_bytes > rest.size() || head.response_bytes > target.capacity) return EIO;

  const std::span<std::byte> response = rest.first(head.response_bytes);
  int error = install_fd(head, response, reply);
  if (error == 0) error = apply_patches(command, rest.subspan(response.size()), head.patch_count);
  if (error == 0) error = copy_to_user(target.address, response);
  if (error != 0 || reply.fd_count == 0) return error;
  if (load<std::uint32_t>(command.data()) == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL &&
      !set_fd(reply.fds[0], {FdKind::kChannel, context_index, head.channel_handle})) {
    return EMFILE;
  }
  return 0;
}

// One command to the daemon and back. Returns 0 or an errno.
int ask_daemon(std::uint32_t context_index, const void* bytes, std::size_t count) {
  Context& context = context_at(context_index);
  const sys::SignalGuard guard;
  pthread_mutex_lock(&context.lock);
  const std::span<std::byte> command(context.buffers, count);
  std::memcpy(command.data(), bytes, count);
  Reply reply;
  int error = translate_channel(command, context_index);
  if (error == 0) {
    const std::span<std::byte> buffer(context.buffers + abi::kMaxMessageBytes,
                                      abi::kMaxMessageBytes);
    error = call(context.connection, abi::MessageType::kCommand, command, buffer, reply);
  }
  if (error == 0) {
    error = finish(context_index, command, reply);
    if (error != 0) close_fds(reply);
  }
  pthread_mutex_unlock(&context.lock);
  return error;
}

// A descriptor closed by a raw system call keeps its mark; its number may be another file by now.
bool is_still_ours(int fd, const Context& context) {
  struct stat status {};
  if (sys::fstat(fd, &status) != 0) return false;
  return status.st_dev == context.device && status.st_ino == context.inode;
}

ssize_t write_slow(int fd, std::uint32_t context_index, const void* bytes, std::size_t count) {
  if (!is_still_ours(fd, context_at(context_index))) {
    release_entry(take_fd(fd));
    return sys::write(fd, bytes, count);
  }
  int error = 0;
  if (count < kHeaderBytes || count > abi::kMaxMessageBytes - sizeof(abi::MessageHeader)) {
    error = EINVAL;
  } else {
    error = ask_daemon(context_index, bytes, count);
  }
  if (error == 0) return static_cast<ssize_t>(count);
  errno = error;
  return -1;
}

}  // namespace

ssize_t write_command(int fd, const void* bytes, std::size_t count) {
  const FdEntry entry = fd_entry(fd);
  Context& context = context_at(entry.context);
  if (!is_fork_seen()) (void)is_owner();
  if (context.state.load(std::memory_order_acquire) != ContextState::kLive) {
    errno = EIO;
    return -1;
  }
  if (count >= kHeaderBytes) {
    const auto* command = static_cast<const std::byte*>(bytes);
    Fast outcome = Fast::kNot;
    switch (load<std::uint32_t>(command)) {
      case IB_USER_VERBS_CMD_POST_SEND:
        outcome = try_post_send(context, command, count);
        break;
      case IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
        outcome = try_req_notify(context, command, count);
        break;
      default:
        break;
    }
    if (outcome == Fast::kDone) return static_cast<ssize_t>(count);
    if (outcome == Fast::kInvalid) {
      errno = EINVAL;
      return -1;
    }
  }
  return write_slow(fd, entry.context, bytes, count);
}

}  // namespace rocemu::shim
