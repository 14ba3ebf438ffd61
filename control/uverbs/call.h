// One uverbs command as it is executed: bounds-checked views of what the client wrote, and the
// response that is put together. The Linux ABI has two framings (plain and extended); handlers see
// one.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <rdma/ib_user_verbs.h>

#include "control/path.h"
#include "control/unique_fd.h"
#include "control/verbs_context.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control::uverbs {

/// A handler's answer: 0, a positive errno, or kSuspended: run it again when a neighbour became
/// known.
inline constexpr int kSuspended = -1;

/// Bytes for a pointer inside the command (abi::Patch).
struct Patch {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
};

struct Call {
  VerbsContext& context;
  bool is_last_try = false;  ///< No more waiting for neighbours.
  std::span<const std::byte>
      core;  ///< The command's struct; at least as long as its table row asks for.
  std::span<const std::byte> driver;
  std::size_t core_room = 0;  ///< Response bytes that the client has room for.
  std::size_t driver_room = 0;

  std::vector<std::byte> response;
  std::vector<Patch> patches;
  UniqueFd fd;
  std::uint32_t fd_offset = abi::kNoFd;
  std::uint32_t channel_handle = 0;
  wire::Gid awaited{};  ///< With kSuspended: whose MAC is asked for.

  /// The command's struct; bytes that an older client does not send are zero.
  template <typename T>
  requires std::is_trivially_copyable_v<T> T take()
  const {
    T out;
    std::memset(&out, 0,
                sizeof out);  // not {}: some of the structs end in an array without elements
    std::memcpy(&out, core.data(), std::min(sizeof out, core.size()));
    return out;
  }
  /// A plain command's driver data, which follows the `core_bytes` of its struct; nothing when the
  /// client sent less.
  template <typename T>
  requires std::is_trivially_copyable_v<T> std::optional<T> take_behind(std::size_t core_bytes)
  const {
    if (core.size() < core_bytes + sizeof(T)) return std::nullopt;
    T out;
    std::memcpy(&out, core.data() + core_bytes, sizeof out);
    return out;
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void patch(std::uint64_t address, const T& value) {
    Patch& made = patches.emplace_back(Patch{address, std::vector<std::byte>(sizeof value)});
    std::memcpy(made.bytes.data(), &value, sizeof value);
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    response.assign(std::min(sizeof value, core_room), std::byte{0});
    std::memcpy(response.data(), &value, response.size());
  }
  /// The provider's part, after put().
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put_driver(const T& value, bool is_extended) {
    const std::size_t at = is_extended ? core_room : response.size();
    const std::size_t room = is_extended ? driver_room : core_room - response.size();
    const std::size_t bytes = std::min(sizeof value, room);
    response.resize(at + bytes);
    std::memcpy(response.data() + at, &value, bytes);
  }
};

/// Completion vectors that GET_CONTEXT promises.
std::uint32_t comp_vector_count();

/// The path of a verbs address vector: 0, an errno or kSuspended.
int find_path(Call& call, const ib_uverbs_qp_dest& dest, const PathEnds& ends,
              transport::AddressVector& out);

// Handlers, by object.
int get_context(Call& call);
int query_device(Call& call);
int query_device_ex(Call& call);
int query_port(Call& call);
int alloc_pd(Call& call);
int dealloc_pd(Call& call);
int create_ah(Call& call);
int destroy_ah(Call& call);
int attach_mcast(Call& call);
int detach_mcast(Call& call);
int reg_mr(Call& call);
int rereg_mr(Call& call);
int dereg_mr(Call& call);
int advise_mr(Call& call);
int alloc_mw(Call& call);
int dealloc_mw(Call& call);
int create_comp_channel(Call& call);
int create_cq(Call& call);
int create_cq_ex(Call& call);
int resize_cq(Call& call);
int req_notify_cq(Call& call);
int destroy_cq(Call& call);
int drop_completions(Call& call);
int create_qp(Call& call);
int create_qp_ex(Call& call);
int query_qp(Call& call);
int modify_qp(Call& call);
int modify_qp_ex(Call& call);
int destroy_qp(Call& call);
int post_send(Call& call);
int create_srq(Call& call);
int modify_srq(Call& call);
int query_srq(Call& call);
int destroy_srq(Call& call);

}  // namespace rocemu::control::uverbs
