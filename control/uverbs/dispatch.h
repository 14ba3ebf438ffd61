// The uverbs front end: raw write() commands of a context, checked against a table and executed, as
// ib_uverbs and the rxe driver would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/uverbs/call.h"

namespace rocemu::control::uverbs {

struct Outcome {
  int error = 0;  ///< 0, a positive errno, or kSuspended.
  std::vector<std::byte> response;
  std::vector<Patch> patches;
  UniqueFd fd;
  std::uint32_t fd_offset = abi::kNoFd;
  std::uint32_t channel_handle = 0;
  std::uint64_t written = 0;
  wire::Gid awaited{};
};

/// `command` is what the application wrote, header first.
Outcome execute(VerbsContext& context, std::span<const std::byte> command, bool is_last_try);

}  // namespace rocemu::control::uverbs
