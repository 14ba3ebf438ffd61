// What the tests of the wire share: bytes from text, exact-size heap blocks (the sanitizer sees a
// byte too many), random packets of every shape, and the checks that hold for whatever was parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/wire/packet.h"
#include "rocemu/base/prng.h"

namespace rocemu::wire::test {

using Frame = std::vector<std::byte>;

/// Hex digits; blanks are skipped.
Frame from_hex(std::string_view text);

/// A copy that ends where its heap block ends.
class ExactBlock {
 public:
  explicit ExactBlock(std::span<const std::byte> bytes)
      : size_(bytes.size()), block_(std::make_unique<std::byte[]>(size_)) {
    if (size_ != 0) std::memcpy(block_.get(), bytes.data(), size_);
  }
  std::byte* data() { return block_.get(); }
  std::span<const std::byte> bytes() const { return {block_.get(), size_}; }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte[]> block_;
};

/// Every opcode that the table knows.
std::vector<Opcode> known_opcodes();

/// What decides a frame's layout.
struct Shape {
  Opcode opcode;
  RoceKind kind;
  bool has_vlan;
};
/// All of them.
std::vector<Shape> all_shapes();

/// All fields random that a frame of this shape carries; pad count for `payload_bytes`.
Packet random_packet(const Shape& shape, std::size_t payload_bytes, Prng& prng);
Frame random_bytes(std::size_t n, Prng& prng);

enum class PathForm { kHeaders, kTemplate };
/// The finished frame, in an own vector of exactly its size.
Frame encode(const Packet& packet, std::span<const std::byte> payload, PathForm form);

/// Payload sizes that make sense for the opcode: none, or 0 ... 5 and two larger ones.
std::vector<std::size_t> payload_sizes(Opcode opcode);

/// Asserts that the offsets and lengths that parse_packet() gave stay inside the frame.
void expect_sound(std::span<const std::byte> frame, const Packet& packet);
/// Asserts that all fields that the shape carries are equal.
void expect_same_fields(const Packet& a, const Packet& b);

}  // namespace rocemu::wire::test
