// The opcode table. Each row states service, operation, position and the set of extended headers;
// the header length follows from the set, so no offset is typed by hand.
#include "dataplane/wire/opcode.h"

#include <array>

#include "dataplane/wire/headers.h"

namespace rocemu::wire {
namespace {

constexpr std::uint8_t header_bytes_of(std::uint16_t headers, Operation operation) {
  std::size_t n = kBthBytes;
  if (headers & kHasDeth) n += 8;
  if (headers & kHasFeth) n += 4;
  if (headers & kHasReth) n += 16;
  if (headers & kHasAtomicEth) n += 28;
  if (headers & kHasAeth) n += 4;
  if (headers & kHasAtomicAckEth) n += 8;
  if (headers & kHasImmDt) n += 4;
  if (headers & kHasIeth) n += 4;
  if (headers & kHasSackEth) n += 16;
  if (operation == Operation::kCnp) n += kCnpReservedBytes;
  return static_cast<std::uint8_t>(n);
}

enum class Payload : bool { kNone, kYes };
enum class Direction : bool { kResponse, kRequest };

struct Table {
  std::array<OpcodeInfo, 256> rows{};

  constexpr void row(Opcode opcode, std::string_view name, Service service, Operation operation,
                     Position position, std::uint16_t headers, Payload payload,
                     Direction direction) {
    rows[static_cast<std::uint8_t>(opcode)] = {
        .name = name,
        .service = service,
        .operation = operation,
        .position = position,
        .headers = headers,
        .header_bytes = header_bytes_of(headers, operation),
        .carries_payload = payload == Payload::kYes,
        .is_request = direction == Direction::kRequest,
    };
  }
};

constexpr Table make_table() {
  Table t;
  using O = Opcode;
  using enum Operation;
  using enum Position;
  constexpr auto kYes = Payload::kYes;
  constexpr auto kNo = Payload::kNone;
  constexpr auto kReq = Direction::kRequest;
  constexpr auto kRsp = Direction::kResponse;
  constexpr auto kRc = Service::kRc;
  constexpr auto kUc = Service::kUc;
  constexpr auto kUd = Service::kUd;

  t.row(O::kRcSendFirst, "RC SEND First", kRc, kSend, kFirst, 0, kYes, kReq);
  t.row(O::kRcSendMiddle, "RC SEND Middle", kRc, kSend, kMiddle, 0, kYes, kReq);
  t.row(O::kRcSendLast, "RC SEND Last", kRc, kSend, kLast, 0, kYes, kReq);
  t.row(O::kRcSendLastImm, "RC SEND Last with Immediate", kRc, kSend, kLast, kHasImmDt, kYes, kReq);
  t.row(O::kRcSendOnly, "RC SEND Only", kRc, kSend, kOnly, 0, kYes, kReq);
  t.row(O::kRcSendOnlyImm, "RC SEND Only with Immediate", kRc, kSend, kOnly, kHasImmDt, kYes, kReq);
  t.row(O::kRcWriteFirst, "RC RDMA WRITE First", kRc, kWrite, kFirst, kHasReth, kYes, kReq);
  t.row(O::kRcWriteMiddle, "RC RDMA WRITE Middle", kRc, kWrite, kMiddle, 0, kYes, kReq);
  t.row(O::kRcWriteLast, "RC RDMA WRITE Last", kRc, kWrite, kLast, 0, kYes, kReq);
  t.row(O::kRcWriteLastImm, "RC RDMA WRITE Last with Immediate", kRc, kWrite, kLast, kHasImmDt,
        kYes, kReq);
  t.row(O::kRcWriteOnly, "RC RDMA WRITE Only", kRc, kWrite, kOnly, kHasReth, kYes, kReq);
  t.row(O::kRcWriteOnlyImm, "RC RDMA WRITE Only with Immediate", kRc, kWrite, kOnly,
        kHasReth | kHasImmDt, kYes, kReq);
  t.row(O::kRcReadRequest, "RC RDMA READ Request", kRc, kReadRequest, kOnly, kHasReth, kNo, kReq);
  t.row(O::kRcReadResponseFirst, "RC RDMA READ Response First", kRc, kReadResponse, kFirst,
        kHasAeth, kYes, kRsp);
  t.row(O::kRcReadResponseMiddle, "RC RDMA READ Response Middle", kRc, kReadResponse, kMiddle, 0,
        kYes, kRsp);
  t.row(O::kRcReadResponseLast, "RC RDMA READ Response Last", kRc, kReadResponse, kLast, kHasAeth,
        kYes, kRsp);
  t.row(O::kRcReadResponseOnly, "RC RDMA READ Response Only", kRc, kReadResponse, kOnly, kHasAeth,
        kYes, kRsp);
  t.row(O::kRcAcknowledge, "RC Acknowledge", kRc, kAcknowledge, kOnly, kHasAeth, kNo, kRsp);
  t.row(O::kRcAtomicAcknowledge, "RC ATOMIC Acknowledge", kRc, kAtomicAcknowledge, kOnly,
        kHasAeth | kHasAtomicAckEth, kNo, kRsp);
  t.row(O::kRcCompareSwap, "RC CmpSwap", kRc, kCompareSwap, kOnly, kHasAtomicEth, kNo, kReq);
  t.row(O::kRcFetchAdd, "RC FetchAdd", kRc, kFetchAdd, kOnly, kHasAtomicEth, kNo, kReq);
  t.row(O::kRcSendLastInvalidate, "RC SEND Last with Invalidate", kRc, kSend, kLast, kHasIeth, kYes,
        kReq);
  t.row(O::kRcSendOnlyInvalidate, "RC SEND Only with Invalidate", kRc, kSend, kOnly, kHasIeth, kYes,
        kReq);
  t.row(O::kRcFlush, "RC FLUSH", kRc, kFlush, kOnly, kHasFeth | kHasReth, kNo, kReq);
  t.row(O::kRcAtomicWrite, "RC ATOMIC WRITE", kRc, kAtomicWrite, kOnly, kHasReth, kYes, kReq);

  t.row(O::kUcSendFirst, "UC SEND First", kUc, kSend, kFirst, 0, kYes, kReq);
  t.row(O::kUcSendMiddle, "UC SEND Middle", kUc, kSend, kMiddle, 0, kYes, kReq);
  t.row(O::kUcSendLast, "UC SEND Last", kUc, kSend, kLast, 0, kYes, kReq);
  t.row(O::kUcSendLastImm, "UC SEND Last with Immediate", kUc, kSend, kLast, kHasImmDt, kYes, kReq);
  t.row(O::kUcSendOnly, "UC SEND Only", kUc, kSend, kOnly, 0, kYes, kReq);
  t.row(O::kUcSendOnlyImm, "UC SEND Only with Immediate", kUc, kSend, kOnly, kHasImmDt, kYes, kReq);
  t.row(O::kUcWriteFirst, "UC RDMA WRITE First", kUc, kWrite, kFirst, kHasReth, kYes, kReq);
  t.row(O::kUcWriteMiddle, "UC RDMA WRITE Middle", kUc, kWrite, kMiddle, 0, kYes, kReq);
  t.row(O::kUcWriteLast, "UC RDMA WRITE Last", kUc, kWrite, kLast, 0, kYes, kReq);
  t.row(O::kUcWriteLastImm, "UC RDMA WRITE Last with Immediate", kUc, kWrite, kLast, kHasImmDt,
        kYes, kReq);
  t.row(O::kUcWriteOnly, "UC RDMA WRITE Only", kUc, kWrite, kOnly, kHasReth, kYes, kReq);
  t.row(O::kUcWriteOnlyImm, "UC RDMA WRITE Only with Immediate", kUc, kWrite, kOnly,
        kHasReth | kHasImmDt, kYes, kReq);

  t.row(O::kUdSendOnly, "UD SEND Only", kUd, kSend, kOnly, kHasDeth, kYes, kReq);
  t.row(O::kUdSendOnlyImm, "UD SEND Only with Immediate", kUd, kSend, kOnly, kHasDeth | kHasImmDt,
        kYes, kReq);

  t.row(O::kCnp, "CNP", Service::kCnp, Operation::kCnp, kOnly, 0, kNo, kReq);
  t.row(O::kRcSack, "RC Selective Acknowledge", Service::kManufacturer, kSack, kOnly,
        kHasAeth | kHasSackEth, kNo, kRsp);
  return t;
}

constexpr Table kTable = make_table();

}  // namespace

const OpcodeInfo& opcode_info(Opcode opcode) {
  return kTable.rows[static_cast<std::uint8_t>(opcode)];
}

}  // namespace rocemu::wire
