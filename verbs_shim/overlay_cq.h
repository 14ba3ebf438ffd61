// The part of the overlay that removes a queue pair's completions when it is reset.
#pragma once

#include <infiniband/verbs.h>

namespace rocemu::shim {

/// Lays the guarded ibv_create_cq_ex over an emulated device's context that was just opened.
/// Extended CQs that cannot be guarded (a second librxe in the process) end the removal of
/// completions.
void overlay_cq_ops(ibv_context* context);

}  // namespace rocemu::shim
