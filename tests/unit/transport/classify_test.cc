// Every opcode after every previous one, at every place relative to the expected PSN. What is
// expected is written down here once more, from the specification and without the opcode table.
#include "dataplane/transport/classify.h"

#include <gtest/gtest.h>

#include <set>

namespace rocemu::transport {
namespace {

using enum PsnRelation;

constexpr std::uint32_t kMtu = 1024;

// RC request opcodes of issue-independent meaning (9.2.1, table 38), by what they do to a message.
const std::set<int> kSendStarts = {0x00, 0x04, 0x05, 0x17};
const std::set<int> kSendGoesOn = {0x01, 0x02, 0x03, 0x16};
const std::set<int> kWriteStarts = {0x06, 0x0a, 0x0b};
const std::set<int> kWriteGoesOn = {0x07, 0x08, 0x09};
const std::set<int> kAlone = {0x0c, 0x13, 0x14, 0x1c, 0x1d};
constexpr int kAtomicWrite = 0x1d;

std::uint32_t legal_payload(int opcode) {
  const std::set<int> full = {0x00, 0x01, 0x06, 0x07};
  if (full.contains(opcode)) return kMtu;
  if (opcode == kAtomicWrite) return 8;
  return kAlone.contains(opcode) ? 0 : 100;
}

Verdict expected_verdict(Incoming incoming, int opcode) {
  const bool goes_on = kSendGoesOn.contains(opcode) || kWriteGoesOn.contains(opcode);
  if (!goes_on) {
    return incoming != Incoming::kNone ? Verdict::kInvalidSequence : Verdict::kExecute;
  }
  const Incoming needed = kWriteGoesOn.contains(opcode) ? Incoming::kWrite : Incoming::kSend;
  if (incoming != needed) return Verdict::kInvalidSequence;
  return Verdict::kExecute;
}

std::set<int> all_requests() {
  std::set<int> all;
  for (const auto* part : {&kSendStarts, &kSendGoesOn, &kWriteStarts, &kWriteGoesOn, &kAlone}) {
    all.insert(part->begin(), part->end());
  }
  return all;
}

RequestShape shape_of(int opcode, Incoming incoming, PsnRelation relation) {
  return {.incoming = incoming,
          .relation = relation,
          .opcode = static_cast<wire::Opcode>(opcode),
          .payload_bytes = legal_payload(opcode),
          .pad_count = 0,
          .path_mtu = kMtu};
}

TEST(Classify, TableOfRequestsIsComplete) {
  const std::set<int> known = all_requests();
  for (int opcode = 0; opcode < 0x20; ++opcode) {
    const wire::OpcodeInfo& info = wire::opcode_info(static_cast<wire::Opcode>(opcode));
    EXPECT_EQ(info.is_valid() && info.is_request, known.contains(opcode)) << opcode;
  }
}

TEST(Classify, EveryOpcodeAfterEveryPreviousOneAtEveryPlace) {
  for (const Incoming incoming : {Incoming::kNone, Incoming::kSend, Incoming::kWrite}) {
    for (const int opcode : all_requests()) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(incoming) << " then " << opcode);
      EXPECT_EQ(classify_request(shape_of(opcode, incoming, kPast)), Verdict::kDuplicate);
      EXPECT_EQ(classify_request(shape_of(opcode, incoming, kFuture)), Verdict::kOutOfSequence);
      EXPECT_EQ(classify_request(shape_of(opcode, incoming, kExpected)),
                expected_verdict(incoming, opcode));
    }
  }
}

TEST(Classify, ReservedOpcodesAndResponsesAreNeverExecuted) {
  const std::set<int> known = all_requests();
  for (int opcode = 0; opcode < 256; ++opcode) {
    const bool is_rc_request = opcode < 0x20 && known.contains(opcode);
    // UC requests share the operations: the header checks keep them from an RC QP.
    const bool is_uc = opcode >= 0x20 && opcode <= 0x2b;
    const bool is_ud = opcode == 0x64 || opcode == 0x65;
    if (is_rc_request || is_uc || is_ud) continue;
    EXPECT_NE(classify_request(shape_of(opcode, Incoming::kNone, kExpected)), Verdict::kExecute)
        << opcode;
  }
}

TEST(Classify, LengthsByPosition) {
  const auto verdict = [](int opcode, Incoming incoming, std::uint32_t bytes, std::uint8_t pad) {
    RequestShape shape = shape_of(opcode, incoming, kExpected);
    shape.payload_bytes = bytes;
    shape.pad_count = pad;
    return classify_request(shape);
  };
  for (const bool is_write : {false, true}) {
    const int base = is_write ? 0x06 : 0x00;
    const Incoming incoming = is_write ? Incoming::kWrite : Incoming::kSend;
    for (const std::uint32_t bytes : {0u, 1u, kMtu - 1, kMtu, kMtu + 1}) {
      const Verdict full = bytes == kMtu ? Verdict::kExecute : Verdict::kInvalidLength;
      EXPECT_EQ(verdict(base, Incoming::kNone, bytes, 0), full);
      EXPECT_EQ(verdict(base + 1, incoming, bytes, 0), full);
      const Verdict last =
          bytes >= 1 && bytes <= kMtu ? Verdict::kExecute : Verdict::kInvalidLength;
      EXPECT_EQ(verdict(base + 2, incoming, bytes, 0), last);
      EXPECT_EQ(verdict(base + 3, incoming, bytes, 0), last);
      const Verdict only = bytes <= kMtu ? Verdict::kExecute : Verdict::kInvalidLength;
      EXPECT_EQ(verdict(base + 4, Incoming::kNone, bytes, 0), only);
      EXPECT_EQ(verdict(base + 5, Incoming::kNone, bytes, 0), only);
    }
    for (const std::uint32_t bytes : {0u, 4u, 8u, 9u, 16u, kMtu}) {
      EXPECT_EQ(verdict(kAtomicWrite, Incoming::kNone, bytes, 0),
                bytes == 8 ? Verdict::kExecute : Verdict::kInvalidLength);
    }
    EXPECT_EQ(verdict(base, Incoming::kNone, kMtu, 1), Verdict::kInvalidLength);
    EXPECT_EQ(verdict(base + 1, incoming, kMtu, 3), Verdict::kInvalidLength);
  }
}

TEST(Classify, RelationHoldsAcrossTheWrapAndAtHalfTheRange) {
  constexpr std::uint32_t kHalf = 1u << 23;
  for (const std::uint32_t expected : {0u, 1u, 1000u, kHalf, 0xff'ffffu}) {
    const Psn psn(expected);
    EXPECT_EQ(psn_relation(psn, psn), kExpected);
    EXPECT_EQ(psn_relation(psn, psn.next()), kFuture);
    EXPECT_EQ(psn_relation(psn, psn.prev()), kPast);
    EXPECT_EQ(psn_relation(psn, psn + static_cast<std::int32_t>(kHalf - 1)), kFuture);
    EXPECT_EQ(psn_relation(psn, psn - static_cast<std::int32_t>(kHalf)), kPast);
  }
}

}  // namespace
}  // namespace rocemu::transport
