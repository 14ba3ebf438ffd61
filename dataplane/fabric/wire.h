// The built-in wire: attachments of one daemon's devices, joined like a switch without queues of
// its own. A frame is written into a slot of the sender's pool, handed to the receiver without a
// copy, and its slot comes back when the receiver is done: a full pool is the back-pressure,
// nothing is lost. Frames to the sender's own address come back to it. Sans-IO, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/engine/frame.h"
#include "dataplane/wire/headers.h"

namespace rocemu::fabric {

inline constexpr std::size_t kSlotBytes =
    4608;  ///< Headroom, 4096 of payload, pad, ICRC; a multiple of 64.
inline constexpr std::uint32_t kSlotsPerAttachment = 1024;
inline constexpr std::uint32_t kWireMtuBytes =
    4200;  ///< Largest IP packet: 4096 of payload and all headers.
inline constexpr std::size_t kMaxAttachments = 64;

class Wire;

/// One device's end of the wire.
class Attachment {
 public:
  Attachment(Wire& wire, const wire::MacAddress& mac);
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  std::optional<engine::TxBuffer> allocate();
  void transmit(const engine::TxFrame& frame);
  void discard(const engine::TxBuffer& buffer);

  /// Received frames, valid until release().
  std::size_t receive(std::span<engine::RxFrame> out);
  void release(std::span<engine::RxFrame> burst);
  bool has_input() const { return head_ != tail_; }

  const wire::MacAddress& mac() const { return mac_; }
  bool is_up() const { return is_up_; }
  /// Down: what is sent and what would be received is dropped; see dropped().
  void set_up(bool is_up) { is_up_ = is_up; }
  /// Frames dropped here since the link was down or a flood found no free slot.
  std::uint64_t dropped() const { return dropped_; }

 private:
  friend class Wire;
  struct Slot {
    alignas(64) std::byte bytes[kSlotBytes];
    Attachment* owner = nullptr;
    std::uint32_t start = 0;
    std::uint32_t length = 0;
  };

  static void give_back(void* handle);
  void deliver(Slot* slot);

  Wire& wire_;
  wire::MacAddress mac_;
  bool is_up_ = true;
  std::uint64_t dropped_ = 0;
  std::unique_ptr<Slot[]> slots_;
  std::vector<Slot*> free_;
  std::vector<Slot*> queue_;  ///< Ring; holds every slot of every attachment at most.
  std::vector<Slot*> burst_;  ///< Handed out by receive().
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

/// Joins attachments. They must not outlive it; it must be complete before frames flow.
class Wire {
 public:
  /// Throws std::length_error beyond kMaxAttachments.
  Attachment& attach(const wire::MacAddress& mac);

 private:
  friend class Attachment;
  void forward(Attachment& from, Attachment::Slot* slot);

  std::vector<std::unique_ptr<Attachment>> attachments_;
};

}  // namespace rocemu::fabric
