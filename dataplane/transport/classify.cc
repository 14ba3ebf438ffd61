#include "dataplane/transport/classify.h"

namespace rocemu::transport {
namespace {

bool is_supported(wire::Operation operation) {
  switch (operation) {
    case wire::Operation::kSend:
    case wire::Operation::kWrite:
    case wire::Operation::kReadRequest:
    case wire::Operation::kCompareSwap:
    case wire::Operation::kFetchAdd:
    case wire::Operation::kFlush:
    case wire::Operation::kAtomicWrite:
      return true;
    default:
      return false;
  }
}

bool may_follow(Incoming incoming, const wire::OpcodeInfo& info) {
  if (info.starts_message()) return incoming == Incoming::kNone;
  return incoming ==
         (info.operation == wire::Operation::kSend ? Incoming::kSend : Incoming::kWrite);
}

// First and middle packets are full and unpadded; a last one carries something (9.7.4.1.6).
bool has_legal_length(const RequestShape& shape, const wire::OpcodeInfo& info) {
  if (!info.ends_message()) return shape.payload_bytes == shape.path_mtu && shape.pad_count == 0;
  if (shape.payload_bytes > shape.path_mtu) return false;
  if (info.operation == wire::Operation::kAtomicWrite) return shape.payload_bytes == 8;
  return info.position != wire::Position::kLast || shape.payload_bytes != 0;
}

}  // namespace

Verdict classify_request(const RequestShape& shape) {
  switch (shape.relation) {
    case PsnRelation::kPast:
      return Verdict::kDuplicate;
    case PsnRelation::kFuture:
      return Verdict::kOutOfSequence;
    case PsnRelation::kExpected:
      break;
  }
  const wire::OpcodeInfo& info = wire::opcode_info(shape.opcode);
  if (!may_follow(shape.incoming, info)) return Verdict::kInvalidSequence;
  if (!is_supported(info.operation)) return Verdict::kUnsupported;
  if (!has_legal_length(shape, info)) return Verdict::kInvalidLength;
  return Verdict::kExecute;
}

}  // namespace rocemu::transport
