// Whole RoCE frames: parse_packet() turns received bytes into a Packet once, and everything above
// works on the Packet; write_headers() is its inverse. A frame is Ethernet [802.1Q] (IPv4 | IPv6 |
// GRH) [UDP] BTH [extended headers] payload pad ICRC, without the Ethernet FCS. Both directions are
// exact: re-encoding what was parsed gives the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/wire/headers.h"
#include "dataplane/wire/icrc.h"
#include "dataplane/wire/opcode.h"
#include "rocemu/abi/counters.h"

namespace rocemu::wire {

/// A parsed frame. `payload` points into the frame. Extended headers that the opcode does not name
/// mean nothing: parse_packet() leaves them as they were and write_headers() does not read them.
struct Packet {
  PathHeaders path;
  Bth bth;
  Reth reth;
  Aeth aeth;
  AtomicEth atomic;
  AtomicAckEth atomic_ack;
  Deth deth;
  Ieth ieth;
  ImmDt imm;
  Feth feth;
  SackEth sack;
  std::span<const std::byte> payload;  ///< Without pad bytes.
  std::uint16_t l3_offset = 0;         ///< Offset of IP header or GRH in the frame.
  std::uint16_t bth_offset = 0;
  std::uint16_t header_bytes = 0;  ///< Frame bytes before the payload.
  std::uint32_t icrc = 0;          ///< As received.

  const OpcodeInfo& info() const { return opcode_info(bth.opcode); }
};

/// What a frame is before anything is checked: RoCE by EtherType or UDP destination port, or
/// somebody else's.
enum class FrameClass : std::uint8_t { kRoce, kOther };
FrameClass classify_frame(std::span<const std::byte> frame);

/// Parses one frame. Checks structure only: lengths, IP header sanity, fragments and options, TVer,
/// known opcode, pad count; not the ICRC, not any QP. Trailing Ethernet padding of short frames is
/// tolerated (lengths of IP or GRH decide). Returns DropReason::none and fills `out`, or the
/// reason.
DropReason parse_packet(std::span<const std::byte> frame, Packet& out);

/// True when the received ICRC is the computed one. `frame` is what `packet` was parsed from.
bool check_icrc(std::span<const std::byte> frame, const Packet& packet);

/// Bytes below the BTH for this kind of path: Ethernet, tag, IP or GRH, UDP.
std::size_t path_header_bytes(const PathHeaders& path);

/// No frame has more bytes before its payload.
inline constexpr std::size_t kMaxHeaderBytes =
    kEthernetBytes + kVlanBytes + kIpv6Bytes + kUdpBytes + kBthBytes + 44;

/// The payload's pad count (0 ... 3).
constexpr std::uint8_t pad_count(std::size_t payload_bytes) {
  return static_cast<std::uint8_t>((4 - (payload_bytes & 3)) & 3);
}

/// Writes all headers of `packet` (path, BTH, the opcode's extended headers) so that they end just
/// before `payload_start`, for a payload of `payload_bytes` (pad excluded; `packet.bth.pad_count`
/// is used as given). Returns the header length; the frame begins at payload_start - length. IP and
/// UDP lengths and the IPv4 checksum are computed. `payload_start` must have kMaxHeaderBytes before
/// it.
std::size_t write_headers(const Packet& packet, std::size_t payload_bytes,
                          std::byte* payload_start);

/// A path's headers, encoded once a QP and copied a packet: only lengths, IPv4 id and checksum are
/// patched.
struct PathTemplate {
  std::array<std::byte, kEthernetBytes + kVlanBytes + kIpv6Bytes + kUdpBytes> bytes{};
  std::uint8_t length = 0;
  std::uint8_t l3_offset = 0;
  RoceKind kind = RoceKind::kV2Ipv4;
  std::uint32_t ip_checksum_base = 0;  ///< Partial sum of the constant IPv4 words.
};
PathTemplate make_path_template(const PathHeaders& path);

/// As write_headers(), with the path taken from a template. `transport` supplies BTH and extended
/// headers only.
std::size_t write_headers(const PathTemplate& path, const Packet& transport,
                          std::size_t payload_bytes, std::byte* payload_start);

/// Zeroes the pad, computes and stores the ICRC of the frame that starts at `frame` with
/// `header_bytes` of headers, the payload already in place. Returns the whole frame length.
std::size_t finish_frame(std::byte* frame, std::size_t header_bytes, std::size_t l3_offset,
                         RoceKind kind, std::size_t payload_bytes);

}  // namespace rocemu::wire
