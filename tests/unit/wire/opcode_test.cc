// The opcode table against the rules that it comes from (IBTA vol. 1, 9.2.1 and tables 37-39): the
// name of a row says what its columns must be.
#include "dataplane/wire/opcode.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "dataplane/wire/headers.h"
#include "tests/unit/wire/frames.h"

namespace rocemu::wire {
namespace {

bool says(const OpcodeInfo& info, std::string_view words) {
  return info.name.find(words) != std::string_view::npos;
}

TEST(Opcode, ExactlyTheKnownOnesAreValid) {
  std::set<int> expected = {0x16, 0x17, 0x1c, 0x1d, 0x64, 0x65, 0x81, 0xc0};
  for (int code = 0x00; code <= 0x14; ++code) expected.insert(code);
  for (int code = 0x20; code <= 0x2b; ++code) expected.insert(code);
  for (int code = 0; code < 256; ++code) {
    const OpcodeInfo& info = opcode_info(static_cast<Opcode>(code));
    EXPECT_EQ(info.is_valid(), expected.contains(code)) << code;
    EXPECT_EQ(info.name.empty(), !info.is_valid()) << code;
    if (!info.is_valid()) {
      EXPECT_EQ(info.header_bytes, 0) << code;
      EXPECT_EQ(info.headers, 0) << code;
    }
  }
}

TEST(Opcode, TheUpperThreeBitsAreTheService) {
  for (const Opcode opcode : test::known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    EXPECT_EQ(static_cast<int>(info.service), static_cast<int>(opcode) >> 5) << info.name;
    const std::string_view prefix = info.service == Service::kUc    ? "UC "
                                    : info.service == Service::kUd  ? "UD "
                                    : info.service == Service::kCnp ? "CNP"
                                                                    : "RC ";
    EXPECT_TRUE(info.name.starts_with(prefix)) << info.name;
  }
}

TEST(Opcode, PositionFollowsTheName) {
  for (const Opcode opcode : test::known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    const Position expected = says(info, "First")    ? Position::kFirst
                              : says(info, "Middle") ? Position::kMiddle
                              : says(info, "Last")   ? Position::kLast
                                                     : Position::kOnly;
    EXPECT_EQ(info.position, expected) << info.name;
    EXPECT_EQ(info.starts_message(), expected == Position::kFirst || expected == Position::kOnly);
    EXPECT_EQ(info.ends_message(), expected == Position::kLast || expected == Position::kOnly);
  }
}

TEST(Opcode, HeadersFollowTheName) {
  for (const Opcode opcode : test::known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    const bool starts = info.starts_message();
    const bool is_write = says(info, "RDMA WRITE");
    const bool is_atomic = says(info, "CmpSwap") || says(info, "FetchAdd");
    const bool is_response = says(info, "Response") || says(info, "Acknowledge");
    EXPECT_EQ(info.has(kHasImmDt), says(info, "Immediate")) << info.name;
    EXPECT_EQ(info.has(kHasIeth), says(info, "Invalidate")) << info.name;
    EXPECT_EQ(info.has(kHasDeth), says(info, "UD")) << info.name;
    EXPECT_EQ(info.has(kHasFeth), says(info, "FLUSH")) << info.name;
    EXPECT_EQ(info.has(kHasSackEth), says(info, "Selective")) << info.name;
    EXPECT_EQ(info.has(kHasAtomicEth), is_atomic) << info.name;
    EXPECT_EQ(info.has(kHasAtomicAckEth), says(info, "ATOMIC Acknowledge")) << info.name;
    EXPECT_EQ(info.has(kHasReth), (is_write && starts) || says(info, "READ Request") ||
                                      says(info, "FLUSH") || says(info, "ATOMIC WRITE"))
        << info.name;
    // Middle READ responses carry no AETH.
    EXPECT_EQ(info.has(kHasAeth), is_response && info.position != Position::kMiddle) << info.name;
    EXPECT_EQ(info.is_request, !is_response) << info.name;
    EXPECT_EQ(info.carries_payload, says(info, "SEND") || is_write || says(info, "READ Response") ||
                                        says(info, "ATOMIC WRITE"))
        << info.name;
  }
}

TEST(Opcode, LengthIsTheBthAndItsHeaders) {
  struct Known {
    Opcode opcode;
    int bytes;
  };
  // Sums of table 39 and of A17.9.3 and A19, added by hand.
  for (const Known& known :
       {Known{Opcode::kRcSendOnly, 12}, Known{Opcode::kRcSendLastImm, 16},
        Known{Opcode::kRcSendOnlyInvalidate, 16}, Known{Opcode::kRcWriteFirst, 28},
        Known{Opcode::kRcWriteMiddle, 12}, Known{Opcode::kRcWriteOnlyImm, 32},
        Known{Opcode::kRcReadRequest, 28}, Known{Opcode::kRcReadResponseFirst, 16},
        Known{Opcode::kRcReadResponseMiddle, 12}, Known{Opcode::kRcAcknowledge, 16},
        Known{Opcode::kRcAtomicAcknowledge, 24}, Known{Opcode::kRcCompareSwap, 40},
        Known{Opcode::kRcFlush, 32}, Known{Opcode::kRcAtomicWrite, 28},
        Known{Opcode::kUcWriteOnlyImm, 32}, Known{Opcode::kUdSendOnly, 20},
        Known{Opcode::kUdSendOnlyImm, 24}, Known{Opcode::kCnp, 28}, Known{Opcode::kRcSack, 32}}) {
    EXPECT_EQ(opcode_info(known.opcode).header_bytes, known.bytes)
        << opcode_info(known.opcode).name;
  }
}

TEST(Opcode, UcRowsAreTheRcRowsOfTheSameOperation) {
  for (int code = 0x20; code <= 0x2b; ++code) {
    const OpcodeInfo& uc = opcode_info(static_cast<Opcode>(code));
    const OpcodeInfo& rc = opcode_info(static_cast<Opcode>(code - 0x20));
    EXPECT_EQ(uc.name.substr(2), rc.name.substr(2));
    EXPECT_EQ(uc.operation, rc.operation);
    EXPECT_EQ(uc.position, rc.position);
    EXPECT_EQ(uc.headers, rc.headers);
    EXPECT_EQ(uc.header_bytes, rc.header_bytes);
  }
}

TEST(Opcode, OperationFollowsTheName) {
  for (const Opcode opcode : test::known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    const Operation expected = says(info, "SEND")                 ? Operation::kSend
                               : says(info, "RDMA WRITE")         ? Operation::kWrite
                               : says(info, "ATOMIC WRITE")       ? Operation::kAtomicWrite
                               : says(info, "READ Request")       ? Operation::kReadRequest
                               : says(info, "READ Response")      ? Operation::kReadResponse
                               : says(info, "ATOMIC Acknowledge") ? Operation::kAtomicAcknowledge
                               : says(info, "Selective")          ? Operation::kSack
                               : says(info, "Acknowledge")        ? Operation::kAcknowledge
                               : says(info, "CmpSwap")            ? Operation::kCompareSwap
                               : says(info, "FetchAdd")           ? Operation::kFetchAdd
                               : says(info, "FLUSH")              ? Operation::kFlush
                                                                  : Operation::kCnp;
    EXPECT_EQ(info.operation, expected) << info.name;
  }
}

TEST(Aeth, SyndromesSplitIntoClassAndValue) {
  EXPECT_EQ(aeth_class(0x1f), AethClass::kAck);
  EXPECT_EQ(aeth_value(make_ack_syndrome(kNoCredits)), kNoCredits);
  EXPECT_EQ(aeth_class(make_rnr_syndrome(14)), AethClass::kRnrNak);
  EXPECT_EQ(make_rnr_syndrome(14), 0x2e);
  EXPECT_EQ(aeth_class(0x5f), AethClass::kReserved);
  EXPECT_EQ(make_nak_syndrome(NakCode::kPsnSequenceError), 0x60);
  EXPECT_EQ(make_nak_syndrome(NakCode::kInvalidRdRequest), 0x64);
  EXPECT_EQ(aeth_class(0x63), AethClass::kNak);
  // The upper bit is reserved and says nothing (9.7.5.1.2).
  EXPECT_EQ(aeth_class(0x9f), AethClass::kAck);
  EXPECT_EQ(aeth_class(0xe1), AethClass::kNak);
}

TEST(Gid, MappedAndMulticastAddresses) {
  const std::array<std::byte, 4> host = {std::byte{10}, std::byte{100}, std::byte{0}, std::byte{1}};
  Gid gid = map_ipv4(host.data());
  EXPECT_EQ(gid, (Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 100, 0, 1}));
  EXPECT_TRUE(is_ipv4_mapped(gid));
  EXPECT_FALSE(is_multicast(gid));
  gid[12] = 0xe0;
  EXPECT_TRUE(is_multicast(gid));
  gid[12] = 0xef;
  EXPECT_TRUE(is_multicast(gid));
  gid[12] = 0xf0;
  EXPECT_FALSE(is_multicast(gid));
  gid[9] = 1;
  EXPECT_FALSE(is_ipv4_mapped(gid));
  EXPECT_FALSE(is_multicast(gid));
  gid[0] = 0xff;
  EXPECT_TRUE(is_multicast(gid));
}

}  // namespace
}  // namespace rocemu::wire
