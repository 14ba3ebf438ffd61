// Every frame of the captures of Linux Soft-RoCE (tests/interop/captures, manifest.jsonl says what
// each shows) goes through the codecs: it parses to what the manifest counted, re-encodes to the
// same bytes, and its ICRC verifies. The frames that netem corrupted are the exception, by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dataplane/wire/packet.h"
#include "rocemu/base/bytes.h"
#include "tests/interop/capture_file.h"

namespace rocemu::wire {
namespace {

namespace fs = std::filesystem;
using interop::Frame;
using interop::read_manifest;
using interop::read_pcap;

constexpr char kCorrupted[] = "netem_corrupt.pcap";

// The manifest's names.
std::string manifest_name(Opcode opcode) {
  static const std::map<Opcode, std::string> names = {
      {Opcode::kRcSendFirst, "SEND_FIRST"},         {Opcode::kRcSendMiddle, "SEND_MIDDLE"},
      {Opcode::kRcSendLast, "SEND_LAST"},           {Opcode::kRcSendOnly, "SEND_ONLY"},
      {Opcode::kRcWriteFirst, "WRITE_FIRST"},       {Opcode::kRcWriteMiddle, "WRITE_MIDDLE"},
      {Opcode::kRcWriteLast, "WRITE_LAST"},         {Opcode::kRcWriteOnly, "WRITE_ONLY"},
      {Opcode::kRcReadRequest, "READ_REQUEST"},     {Opcode::kRcAcknowledge, "ACKNOWLEDGE"},
      {Opcode::kRcAtomicAcknowledge, "ATOMIC_ACK"}, {Opcode::kRcCompareSwap, "COMPARE_SWAP"},
      {Opcode::kRcFetchAdd, "FETCH_ADD"},
  };
  const auto found = names.find(opcode);
  return found == names.end() ? "" : "RC_" + found->second;
}

std::string aeth_name(std::uint8_t syndrome) {
  switch (aeth_class(syndrome)) {
    case AethClass::kAck:
      return "ACK";
    case AethClass::kRnrNak:
      return "RNR";
    case AethClass::kReserved:
      return "reserved";
    case AethClass::kNak:
      break;
  }
  static const std::array<std::string, 4> names = {"NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS",
                                                   "NAK_REM_OP"};
  return aeth_value(syndrome) < names.size() ? names[aeth_value(syndrome)] : "NAK";
}

void expect_same_bytes(std::span<const std::byte> frame, const Packet& packet, bool by_template) {
  alignas(64) std::array<std::byte, 9000> room;
  std::byte* payload = room.data() + 256;
  std::ranges::copy(packet.payload, payload);
  const std::size_t headers = by_template ? write_headers(make_path_template(packet.path), packet,
                                                          packet.payload.size(), payload)
                                          : write_headers(packet, packet.payload.size(), payload);
  ASSERT_EQ(headers, packet.header_bytes);
  const std::size_t length = finish_frame(payload - headers, headers, packet.l3_offset,
                                          packet.path.kind, packet.payload.size());
  ASSERT_LE(length, frame.size());
  EXPECT_EQ(std::memcmp(payload - headers, frame.data(), length), 0);
}

TEST(Captures, EveryFrameParsesReencodesAndVerifies) {
  const fs::path folder = ROCEMU_CAPTURES;
  const auto manifest = read_manifest(folder);
  ASSERT_GE(manifest.size(), 60u);
  std::size_t checked = 0;
  for (const auto& entry : manifest) {
    const std::string name = entry.at("file");
    SCOPED_TRACE(name);
    std::map<std::string, std::int64_t> opcodes;
    std::map<std::string, std::int64_t> aeths;
    std::int64_t roce = 0;
    std::int64_t bad = 0;
    for (const Frame& frame : read_pcap(folder / name)) {
      if (classify_frame(frame) != FrameClass::kRoce) continue;
      ++roce;
      Packet packet;
      const DropReason reason = parse_packet(frame, packet);
      const bool is_good = reason == DropReason::none && check_icrc(frame, packet);
      if (!is_good) {
        ++bad;
        continue;
      }
      expect_same_bytes(frame, packet, false);
      expect_same_bytes(frame, packet, true);
      ++opcodes[manifest_name(packet.bth.opcode)];
      if (packet.info().has(kHasAeth)) ++aeths[aeth_name(packet.aeth.syndrome)];
      ++checked;
    }
    if (name == kCorrupted) {
      EXPECT_GT(bad, 0);
      continue;
    }
    EXPECT_EQ(bad, 0);
    EXPECT_EQ(roce, entry.at("icrc_checked").get<std::int64_t>());
    for (const auto& [opcode, count] : opcodes) {
      if (opcode.empty()) continue;
      EXPECT_EQ(count, entry.at("opcodes").at(opcode)) << opcode;
    }
    if (entry.contains("aeth") && entry["aeth"].contains("ACK")) {
      EXPECT_EQ(aeths["ACK"], entry["aeth"]["ACK"]);
    }
    for (const char* nak : {"NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS", "NAK_REM_OP"}) {
      if (!entry.contains("aeth") || !entry["aeth"].contains(nak)) continue;
      EXPECT_EQ(aeths[nak], entry["aeth"][nak]);
    }
  }
  EXPECT_GT(checked, 3000u);
}

TEST(Captures, EveryTruncationOfEveryFrameIsRefusedOrSound) {
  const fs::path folder = ROCEMU_CAPTURES;
  for (const auto& entry : read_manifest(folder)) {
    const std::string name = entry.at("file");
    std::size_t taken = 0;
    for (const Frame& frame : read_pcap(folder / name)) {
      if (++taken > 40) break;
      for (std::size_t length = 0; length < std::min<std::size_t>(frame.size(), 120); ++length) {
        // An exact-size block: the sanitizer sees a read past the end.
        const auto block = std::make_unique<std::byte[]>(length);
        std::memcpy(block.get(), frame.data(), length);
        Packet packet;
        (void)classify_frame({block.get(), length});
        EXPECT_NE(parse_packet({block.get(), length}, packet), DropReason::none);
      }
    }
  }
}

TEST(Captures, FlippedBitsNeverPassTheIcrcUnlessRoutersMayFlipThem) {
  const fs::path folder = ROCEMU_CAPTURES;
  const auto frames = read_pcap(folder / "sizes_pad.pcap");
  std::size_t refused = 0;
  for (const Frame& original : frames) {
    if (classify_frame(original) != FrameClass::kRoce) continue;
    for (std::size_t at = 42; at < std::min<std::size_t>(original.size(), 110); ++at) {
      Frame frame = original;
      frame[at] ^= std::byte{0x10};
      Packet packet;
      if (parse_packet(frame, packet) != DropReason::none || !check_icrc(frame, packet)) ++refused;
      if (at != 46 && at < frame.size()) {  // 46: FECN, BECN and reserved bits, masked
        EXPECT_FALSE(parse_packet(frame, packet) == DropReason::none && check_icrc(frame, packet))
            << at;
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace rocemu::wire
