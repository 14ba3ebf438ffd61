// The shim's messages to the daemon: SOCK_SEQPACKET over a Unix socket, one request and one reply
// at a time on a connection. A connection is first greeted (kHello), then either becomes one verbs
// context (kOpenDevice: its life is the context's life) or stays a process connection (sysfs reads,
// exec notices). Host byte order; both ends are one machine. The daemon trusts nothing here: the
// peer's pid and uid come from SO_PEERCRED, every length is checked against the bytes received.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocemu::abi {

inline constexpr std::uint32_t kMessageMagic = 0x524f4d53;  // "ROMS"
inline constexpr std::uint32_t kProtocolVersion =
    1;  // any change of layout or meaning counts it up
inline constexpr std::size_t kMaxMessageBytes = 64 * 1024;
inline constexpr std::size_t kMaxMessageFds = 20;

/// The daemon's socket and other run-time files live in one directory: $ROCEMU_RUNTIME_DIR, else
/// /run/rocemu for root, else $XDG_RUNTIME_DIR/rocemu, else /tmp/rocemu-<uid>.
inline constexpr char kRuntimeDirVariable[] = "ROCEMU_RUNTIME_DIR";
inline constexpr char kSocketName[] = "rocemud.sock";  // for the shim, below the run-time directory
inline constexpr char kCountersName[] = "counters";    // CountersHeader
inline constexpr char kSysfsName[] =
    "sys";  // root of the emulated /sys: class/infiniband, class/infiniband_verbs, ...
inline constexpr char kControlName[] = "control.sock";  // JSON requests of the rocemu tool
inline constexpr char kPidName[] = "rocemud.pid";
inline constexpr char kLogName[] = "rocemud.log";

inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsFirstMinor =
    192;  // /dev/infiniband/uverbsN is 231:192+N, as in Linux

enum class MessageType : std::uint32_t {
  kHello = 1,       ///< payload HelloRequest -> HelloReply
  kOpenDevice = 2,  ///< payload OpenDeviceRequest -> OpenDeviceReply; fds: context memfd, then
                    ///< (doorbell memfd, eventfd) a shard
  kCommand = 3,     ///< payload: raw uverbs write() bytes (struct ib_uverbs_cmd_hdr first) ->
                    ///< CommandReply; see there
  kReadSysfs =
      4,  ///< payload: path below the sysfs root, no NUL -> the attribute's text as it is now
  kExecNotice = 5,  ///< the process is about to execve: stop using its address space; reply when
                    ///< nothing can touch it
  kExecFailed = 6,  ///< execve returned: the address space is the old one after all
};

/// Opens every message, request and reply alike. `length` counts the bytes after this header.
struct MessageHeader {
  std::uint32_t magic;
  MessageType type;
  std::uint32_t sequence;  ///< The reply repeats the request's.
  std::uint32_t length;
  std::int32_t error;  ///< Replies: 0 or a positive errno; requests: 0.
  std::uint32_t reserved;
};
static_assert(sizeof(MessageHeader) == 24);

struct HelloRequest {
  std::uint32_t protocol_version;
  std::uint32_t reserved;
};

struct HelloReply {
  std::uint32_t protocol_version;
  std::uint32_t device_count;  ///< uverbs0 ... uverbs<device_count - 1>
};

struct OpenDeviceRequest {
  std::uint32_t device_index;  ///< N of uverbsN
  std::uint32_t reserved;
};

struct OpenDeviceReply {
  std::uint32_t shard_count;  ///< Pairs (doorbell memfd, eventfd) after the context memfd; 1 ... 9.
  std::uint32_t reserved;
  std::uint64_t context_bytes;  ///< Size of the context memfd.
  std::uint64_t
      doorbell_bytes;  ///< Size of each doorbell memfd: sizeof(DoorbellPage) rounded up to pages.
};

/// Follows the raw command in kCommand requests: nothing. In the reply: this, `response_bytes` of
/// response for the command's `response` pointer, then `patch_count` patches. At most one fd
/// travels with the reply (channel or async fd); when it does, the shim stores the new fd number at
/// `fd_offset` of the response. Requests that name a completion channel by fd number (CREATE_CQ,
/// EX_CREATE_CQ) carry the channel's handle in that field instead: the shim translates. A QP's and
/// a CQ's handle name their doorbell slots (make_handle in doorbell.h; on shard 0 it is the slot).
/// `written` is what write() returns when `error` is 0.
struct CommandReply {
  std::uint32_t response_bytes;
  std::uint32_t patch_count;
  std::uint32_t fd_offset;  ///< kNoFd: none.
  std::uint32_t
      channel_handle;  ///< With a channel's fd: what the shim puts in place of the fd number later.
  std::uint64_t written;
};
inline constexpr std::uint32_t kNoFd = 0xffff'ffff;

/// Bytes that the kernel would have stored at a pointer inside the command (MODIFY_SRQ's
/// mmap_info_addr): `length` bytes follow, padded to 8.
struct Patch {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t reserved;
};

}  // namespace rocemu::abi
