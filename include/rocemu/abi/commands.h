// Commands of our own beside those of the kernel's uverbs ABI, for verbs that the kernel offers in
// other ways than by write(). They travel as plain commands do (ib_uverbs_cmd_hdr first), from the
// shim's overlay to the daemon; an application cannot mean anything else by these numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocemu::abi {

inline constexpr std::uint32_t kCommandAdviseMr = 0x60;
inline constexpr std::uint32_t kCommandDropCompletions = 0x61;

inline constexpr std::uint32_t kMaxAdvisedRanges = 32;

/// ibv_advise_mr: checks the ranges; the answer is the address of each in the client's memory
/// (std::uint64_t[kMaxAdvisedRanges]), for the client to fault in. EINVAL: a key that is no region
/// on demand, or the range; EPERM: the PD or the rights.
struct AdviseMr {
  std::uint64_t response;
  std::uint32_t pd_handle;
  std::uint32_t advice;  ///< IBV_ADVISE_MR_ADVICE_*.
  std::uint32_t range_count;
  std::uint32_t reserved;
  struct Range {
    std::uint64_t address;
    std::uint32_t length;
    std::uint32_t lkey;
  } ranges[kMaxAdvisedRanges];
};
static_assert(sizeof(AdviseMr) == 24 + 16 * kMaxAdvisedRanges);

/// Removes the completions of a queue pair in RESET from its completion queues. The client must not
/// poll these meanwhile: the daemon moves what stays. EINVAL: no such queue pair, or not in RESET.
struct DropCompletions {
  std::uint32_t qp_handle;
  std::uint32_t reserved;
};

}  // namespace rocemu::abi
