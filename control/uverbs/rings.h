// Rings as the provider is told of them, and their contents when they move to another size.
#pragma once

#include <rdma/rdma_user_rxe.h>

#include <cstdint>
#include <optional>

#include "control/verbs_context.h"

namespace rocemu::control::uverbs {

/// Where the provider maps the ring.
mminfo info_of(const Ring& ring);

/// Copies the elements between consumer and producer of `from` to the start of `to`, an empty ring
/// of the same stride; returns their number, or nothing when it is above `limit`. On the worker: it
/// is their other user. The indices are the client's to write: masked, so nonsense in them moves
/// nonsense of its own.
std::optional<std::uint32_t> move_elements(const VerbsContext& context, const Ring& from,
                                           const Ring& to, std::uint32_t limit);

}  // namespace rocemu::control::uverbs
