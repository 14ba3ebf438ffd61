// What a request packet is to the responder, before anything is done: a pure function of the packet
// and of where the responder stands (IBTA vol. 1, 9.7.4.1: PSN, then opcode sequence, then opcode,
// then length). "Decide, then act": the responder applies the verdict.
#pragma once

#include <cstdint>

#include "dataplane/transport/qp.h"
#include "dataplane/wire/opcode.h"

namespace rocemu::transport {

enum class PsnRelation : std::uint8_t { kPast, kExpected, kFuture };

constexpr PsnRelation psn_relation(Psn expected, Psn psn) {
  const std::int32_t ahead = distance(expected, psn);
  return ahead == 0  ? PsnRelation::kExpected
         : ahead < 0 ? PsnRelation::kPast
                     : PsnRelation::kFuture;
}

enum class Verdict : std::uint8_t {
  kExecute,          ///< In order and well formed: goes on to rights, receive queue and memory.
  kDuplicate,        ///< Executed before (9.7.5.1.4).
  kOutOfSequence,    ///< A request before it is missing (9.7.5.2.2).
  kInvalidSequence,  ///< The opcode may not follow the previous one (C9-83 ff.): NAK invalid
                     ///< request.
  kUnsupported,      ///< An opcode that this responder does not execute: NAK invalid request.
  kInvalidLength,    ///< The payload length does not fit opcode and path MTU: NAK invalid request.
};

struct RequestShape {
  Incoming incoming = Incoming::kNone;  ///< What the responder is in the middle of.
  PsnRelation relation = PsnRelation::kExpected;
  wire::Opcode opcode{};
  std::uint32_t payload_bytes = 0;
  std::uint8_t pad_count = 0;
  std::uint32_t path_mtu = 256;
};

Verdict classify_request(const RequestShape& shape);

}  // namespace rocemu::transport
