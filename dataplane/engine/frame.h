// Frames between an engine and whatever carries them. Output: the engine asks a FrameSink for
// buffers, fills them and gives them back, pulled with a budget. Input: RxFrame views a received
// frame for the length of one call, unless the engine takes it. A frame buffer is contiguous, with
// headroom, its payload aligned to 64 bytes (copies from client memory are faster so).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rocemu/base/ids.h"

namespace rocemu::engine {

/// Payload offset in a TxBuffer: headers are written backwards from here, so they may take up to
/// kTxHeadroom bytes.
inline constexpr std::size_t kTxHeadroom = 128;

/// Room for one frame, owned by the engine between allocate() and transmit()/discard().
struct TxBuffer {
  std::byte* base = nullptr;   ///< 64-byte aligned.
  std::uint32_t capacity = 0;  ///< Bytes from `base`.
  void* handle = nullptr;      ///< The sink's own (an mbuf, a slot).
};

/// A finished frame: `headers_start` ... + `length` in `buffer`, or with references: headers in the
/// buffer, then the payload pieces, then pad and ICRC (`trailer_bytes` of them right after the
/// headers in the buffer).
struct TxFrame {
  TxBuffer buffer;
  std::uint16_t headers_start = 0;  ///< Offset of the frame's first byte from buffer.base.
  std::uint16_t headers_bytes = 0;
  std::uint32_t length = 0;  ///< Whole frame, references included.
  std::span<const std::span<const std::byte>>
      references;  ///< Payload in application memory; empty: payload is in the buffer.
  std::uint8_t trailer_bytes = 0;  ///< Only with references.
  FrameToken token;                ///< Only with references: comes back by Engine::on_released.
};

struct SinkCapabilities {
  bool takes_references = false;  ///< Frames may reference application memory until released.
  bool elides_icrc = false;       ///< Trusted wire: the ICRC need not be computed.
};

/// Where frames go. One implementation a kind of link; a virtual call a frame costs 2-3 ns.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual SinkCapabilities capabilities() const { return {}; }
  /// A buffer of at least kTxHeadroom + `payload_capacity` bytes, or nothing when the link is full:
  /// stop and come again.
  virtual std::optional<TxBuffer> allocate(std::size_t payload_capacity) = 0;
  /// Takes the frame. Order of calls is order on the wire.
  virtual void transmit(const TxFrame& frame) = 0;
  /// Gives an unused buffer back.
  virtual void discard(const TxBuffer& buffer) = 0;
};

/// A received frame. Valid during on_frames(); take() keeps it for longer.
class RxFrame {
 public:
  /// `owner` and `release` give the buffer back after take(); null when the frame cannot be kept
  /// (take() then copies nothing and returns no handle).
  using Release = void (*)(void* handle);

  RxFrame() = default;
  RxFrame(std::span<const std::byte> bytes, void* handle, Release release)
      : bytes_(bytes), handle_(handle), release_(release) {}

  /// The frame from the Ethernet header to the ICRC (FCS excluded).
  std::span<const std::byte> bytes() const { return bytes_; }

  struct Kept {
    std::span<const std::byte> bytes;
    void* handle = nullptr;
    Release release = nullptr;
  };
  /// Keeps the bytes alive beyond the call; the keeper calls release(handle) once. The driver then
  /// does not reuse the buffer.
  std::optional<Kept> take() {
    if (release_ == nullptr || is_taken_) return std::nullopt;
    is_taken_ = true;
    return Kept{bytes_, handle_, release_};
  }
  bool is_taken() const { return is_taken_; }

 private:
  std::span<const std::byte> bytes_;
  void* handle_ = nullptr;
  Release release_ = nullptr;
  bool is_taken_ = false;
};

}  // namespace rocemu::engine
