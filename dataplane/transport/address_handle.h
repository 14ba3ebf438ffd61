// An address handle: where datagrams of a UD queue pair go. The path is resolved by the control
// thread and encoded once; a work request names the handle by number. The number is the client's to
// write, so it is looked up with the queue pair's context and protection domain.
#pragma once

#include <cstdint>
#include <type_traits>

#include "dataplane/wire/packet.h"
#include "rocemu/base/ids.h"

namespace rocemu::transport {

/// Handle numbers are a slot and a generation, so that a number that is used again names nothing
/// old; never 0, which providers take for "no handle".
inline constexpr std::uint32_t kAhIndexBits = 15;
inline constexpr std::uint32_t kAhIndexMask = (1u << kAhIndexBits) - 1;

struct AddressHandle {
  std::uint32_t number = 0;
  ContextId context;
  PdId pd;
  wire::PathTemplate path;
};
static_assert(std::is_trivially_copyable_v<AddressHandle>);

}  // namespace rocemu::transport
