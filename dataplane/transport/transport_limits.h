// Compile-time limits of the transport. Run-time limits (how many QPs, CQs, ...) are EngineLimits
// in engine/engine.h.
#pragma once

#include <cstdint>

namespace rocemu::transport {

inline constexpr std::uint32_t kMaxSge = 32;
inline constexpr std::uint32_t kMaxInlineBytes = 512;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 31;
inline constexpr std::uint32_t kMinPathMtu = 256;
inline constexpr std::uint32_t kMaxPathMtu = 4096;
inline constexpr std::uint32_t kMaxRdAtomic =
    128;  ///< Outstanding READs and atomics a QP, either side.
inline constexpr std::uint32_t kMaxQpWr = 1u << 16;            ///< Work requests a queue.
inline constexpr std::uint32_t kMaxMulticastGroups = 8192;     ///< A device.
inline constexpr std::uint32_t kMaxMulticastAttachments = 56;  ///< QPs a group.
inline constexpr std::uint32_t kMaxSrqWr = kMaxQpWr - 1;
inline constexpr std::uint32_t kMaxCqe = (1u << 22) - 1;

}  // namespace rocemu::transport
