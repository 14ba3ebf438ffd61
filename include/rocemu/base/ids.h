// Strong identities. No raw integer stands for an object: two identities of different kinds never
// mix by accident, and "none" is a named value. Ids are indices or wire numbers; they own nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace rocemu {

/// An index or number of one kind; `Tag` only separates the kinds.
template <typename Tag, typename Rep = std::uint32_t>
struct Id {
  using rep = Rep;
  Rep value = std::numeric_limits<Rep>::max();

  static constexpr Id none() { return {}; }
  constexpr bool is_none() const { return value == std::numeric_limits<Rep>::max(); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using QpNum = Id<struct QpNumTag>;  ///< Queue pair number as on the wire; 24 bits, 2 is the first
                                    ///< ordinary one.
using QpIndex = Id<struct QpIndexTag>;    ///< Slot of a QP in its shard's pool.
using CqIndex = Id<struct CqIndexTag>;    ///< Slot of a CQ in its shard's pool.
using SrqIndex = Id<struct SrqIndexTag>;  ///< Slot of an SRQ in its shard's pool.
using PdId = Id<struct PdIdTag>;          ///< Protection domain within a device.
using MrIndex = Id<struct MrIndexTag>;    ///< Slot in the device's memory-region table.
using SpaceId = Id<struct SpaceIdTag>;    ///< A client's address space, bound to one program image
                                          ///< (not to a pid).
using RegionId = Id<struct RegionIdTag>;  ///< A client's ring memory (the context memfd) as mapped
                                          ///< by the daemon.
using ContextId = Id<struct ContextIdTag>;  ///< One opened verbs context (one ibv_open_device).
using FrameToken = Id<struct FrameTokenTag,
                      std::uint64_t>;  ///< A frame lent to a sink; comes back by on_released.

}  // namespace rocemu
