// A plain uverbs command that the overlay itself sends.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "verbs_shim/commands.h"

namespace rocemu::shim {

/// Sends `core` with its header; the response goes where `core` says. Returns 0 or an errno, and
/// leaves errno alone when there is none.
template <typename Core>
int send_command(const ibv_context* context, std::uint32_t number, const Core& core,
                 std::size_t response_bytes) {
  struct {
    ib_uverbs_cmd_hdr header;
    Core core;
  } command{{number, static_cast<std::uint16_t>(sizeof command / 4),
             static_cast<std::uint16_t>(response_bytes / 4)},
            core};
  const int saved = errno;
  if (write_command(context->cmd_fd, &command, sizeof command) >= 0) {
    errno = saved;
    return 0;
  }
  return errno;
}

}  // namespace rocemu::shim
