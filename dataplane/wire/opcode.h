// BTH opcodes as data (IBTA vol. 1, 9.2.1, table 38; A17 for the CNP; A19 for FLUSH and ATOMIC
// WRITE; the manufacturer range 0xC0-0xFF is reserved for rocemu's SACK response). Code asks
// questions of the table instead of switching over sixty opcodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rocemu::wire {

enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0a,
  kRcWriteOnlyImm = 0x0b,
  kRcReadRequest = 0x0c,
  kRcReadResponseFirst = 0x0d,
  kRcReadResponseMiddle = 0x0e,
  kRcReadResponseLast = 0x0f,
  kRcReadResponseOnly = 0x10,
  kRcAcknowledge = 0x11,
  kRcAtomicAcknowledge = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kRcFlush = 0x1c,
  kRcAtomicWrite = 0x1d,
  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImm = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImm = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImm = 0x29,
  kUcWriteOnly = 0x2a,
  kUcWriteOnlyImm = 0x2b,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,
  kRcSack = 0xc0,  ///< Manufacturer range: selective acknowledgement between rocemu peers that
                   ///< agreed on it.
};

/// Top three bits of the opcode (table 37).
enum class Service : std::uint8_t {
  kRc = 0,
  kUc = 1,
  kRd = 2,
  kUd = 3,
  kCnp = 4,
  kXrc = 5,
  kManufacturer = 6
};

enum class Operation : std::uint8_t {
  kInvalid,
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kFlush,
  kAtomicWrite,
  kCnp,
  kSack,
};

enum class Position : std::uint8_t { kFirst, kMiddle, kLast, kOnly };

/// Which extended headers follow the BTH, in this order on the wire.
enum ExtendedHeader : std::uint16_t {
  kHasDeth = 1 << 0,
  kHasFeth = 1 << 1,
  kHasReth = 1 << 2,
  kHasAtomicEth = 1 << 3,
  kHasAeth = 1 << 4,
  kHasAtomicAckEth = 1 << 5,
  kHasImmDt = 1 << 6,
  kHasIeth = 1 << 7,
  kHasSackEth = 1 << 8,  ///< Manufacturer range: 128-bit bitmap of packets received past a hole.
};

struct OpcodeInfo {
  std::string_view
      name;  ///< As in the specification, e.g. "RC RDMA WRITE First"; empty for reserved opcodes.
  Service service = Service::kRc;
  Operation operation = Operation::kInvalid;
  Position position = Position::kOnly;
  std::uint16_t headers = 0;      ///< OR of ExtendedHeader.
  std::uint8_t header_bytes = 0;  ///< BTH and extended headers; derived from `headers`.
  bool carries_payload = false;
  bool is_request = false;

  bool is_valid() const { return operation != Operation::kInvalid; }
  bool has(ExtendedHeader header) const { return (headers & header) != 0; }
  bool starts_message() const {
    return position == Position::kFirst || position == Position::kOnly;
  }
  bool ends_message() const { return position == Position::kLast || position == Position::kOnly; }
};

/// Never fails: reserved opcodes give an entry with is_valid() false.
const OpcodeInfo& opcode_info(Opcode opcode);

}  // namespace rocemu::wire
