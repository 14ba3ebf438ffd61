// The headers of RoCE as plain values (IBTA vol. 1 chapter 9, annexes A16 RoCE, A17 RoCE v2, A19
// memory placement extensions). A value holds exactly what the header carries, in host order; they
// are read and written as parts of whole frames, in packet.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/wire/opcode.h"
#include "rocemu/base/ids.h"
#include "rocemu/base/psn.h"

namespace rocemu::wire {

using MacAddress = std::array<std::uint8_t, 6>;
/// 128-bit GID or IPv6 address in network order; an IPv4 address is ::ffff:a.b.c.d.
using Gid = std::array<std::uint8_t, 16>;

/// The GID of the four address bytes at `address`.
Gid map_ipv4(const std::byte* address);
bool is_ipv4_mapped(const Gid& gid);
bool is_multicast(const Gid& gid);  ///< IPv6 ff00::/8 or IPv4-mapped 224.0.0.0/4.

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr std::uint16_t kEtherTypeRoceV1 = 0x8915;
inline constexpr std::uint16_t kRoceUdpPort = 4791;

inline constexpr std::size_t kEthernetBytes = 14;  ///< Without the FCS.
inline constexpr std::size_t kVlanBytes = 4;
inline constexpr std::size_t kIpv4Bytes = 20;  ///< Without options, which RoCE v2 does not have.
inline constexpr std::size_t kIpv6Bytes = 40;  ///< And the GRH.
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kCnpReservedBytes = 16;  ///< Behind the BTH of a CNP (A17.9.3).
inline constexpr std::size_t kIcrcBytes = 4;

/// How a packet is addressed below the BTH.
enum class RoceKind : std::uint8_t { kV1, kV2Ipv4, kV2Ipv6 };

/// Everything below the BTH: Ethernet, optional 802.1Q tag, IP or GRH, UDP.
struct PathHeaders {
  RoceKind kind = RoceKind::kV2Ipv4;
  MacAddress destination_mac{};
  MacAddress source_mac{};
  bool has_vlan = false;
  std::uint16_t vlan_tci = 0;  ///< PCP(3) DEI(1) VID(12).
  Gid source{};
  Gid destination{};
  std::uint8_t traffic_class = 0;  ///< DSCP(6) ECN(2).
  std::uint8_t hop_limit = 64;     ///< IPv4 TTL.
  std::uint32_t flow_label = 0;    ///< 20 bits; IPv6 and v1 only.
  std::uint16_t ip_id = 0;         ///< IPv4 identification.
  bool dont_fragment = true;       ///< IPv4 DF.
  std::uint16_t udp_source_port = 0;
  std::uint16_t udp_checksum = 0;  ///< As on the wire; 0 means none. Sent as 0.
};

/// Base transport header, 12 bytes (9.2).
struct Bth {
  Opcode opcode = Opcode::kRcSendOnly;
  bool solicited = false;
  bool mig_req = true;
  std::uint8_t pad_count = 0;          ///< 2 bits.
  std::uint8_t transport_version = 0;  ///< 4 bits.
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint8_t reserved8a = 0;  ///< 6 bits after FECN and BECN.
  QpNum destination_qp{0};
  bool ack_req = false;
  std::uint8_t reserved8b = 0;  ///< 7 bits.
  Psn psn{};
};

struct Reth {  // 16 bytes (9.3.3)
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint32_t dma_length = 0;
};
struct Aeth {  // 4 bytes (9.3.5)
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  ///< 24 bits.
};
struct AtomicEth {  // 28 bytes (9.3.4)
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};
struct AtomicAckEth {  // 8 bytes
  std::uint64_t original = 0;
};
struct Deth {  // 8 bytes (9.3.2)
  std::uint32_t qkey = 0;
  QpNum source_qp{0};
};
struct Ieth {  // 4 bytes (9.3.7)
  std::uint32_t rkey = 0;
};
struct ImmDt {  // 4 bytes, passed through as big-endian bytes give it (9.3.6)
  std::uint32_t value = 0;
};
/// FLUSH extended transport header, 4 bytes (A19): placement type bits and selectivity level.
struct Feth {
  std::uint8_t placement_type = 0;     ///< 4 bits: 1 global visibility, 2 persistence.
  std::uint8_t selectivity_level = 0;  ///< 2 bits: 0 memory-region range, 1 whole region.
};

/// Selective acknowledgement bitmap, 16 bytes: bit i (from the most significant of the first byte)
/// stands for the packet i + 1 after the AETH's cumulative PSN. Only between rocemu peers that
/// agreed on it.
struct SackEth {
  std::array<std::uint8_t, 16> bitmap{};
};

/// AETH syndrome classes (9.7.5.1.2, table 47) and the NAK codes.
enum class AethClass : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
enum class NakCode : std::uint8_t {
  kPsnSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};
constexpr AethClass aeth_class(std::uint8_t syndrome) {
  return static_cast<AethClass>((syndrome >> 5) & 3);
}
constexpr std::uint8_t aeth_value(std::uint8_t syndrome) { return syndrome & 0x1f; }
constexpr std::uint8_t make_ack_syndrome(std::uint8_t credits) { return credits & 0x1f; }
constexpr std::uint8_t make_rnr_syndrome(std::uint8_t timer) {
  return static_cast<std::uint8_t>(0x20 | (timer & 0x1f));
}
constexpr std::uint8_t make_nak_syndrome(NakCode code) {
  return static_cast<std::uint8_t>(0x60 | static_cast<std::uint8_t>(code));
}
/// Credit field that says "no end-to-end flow control" (9.7.7.2).
inline constexpr std::uint8_t kNoCredits = 0x1f;

}  // namespace rocemu::wire
