// What the parts of the overlay ask of the poll_cq overlay.
#pragma once

#include <infiniband/verbs.h>

namespace rocemu::shim {

/// Polls of the context's CQs pass the guard (poll_guard.h): its poll_cq is ours. It is not where
/// the program found ibv_open_device by dlsym, or where too many providers are loaded.
bool has_guarded_polls(const ibv_context* context);

}  // namespace rocemu::shim
