// The memory part of the overlay: what librxe leaves empty and the public verbs offer.
#pragma once

#include <infiniband/verbs.h>

namespace rocemu::shim {

/// Lays ibv_advise_mr over an emulated device's context that was just opened.
void overlay_memory_ops(ibv_context* context);

}  // namespace rocemu::shim
