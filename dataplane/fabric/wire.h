// The built-in wire: attachments of one daemon's devices, joined like a switch without queues of
// its own. A frame is written into a slot of the sender's pool, handed to the receiver without a
// copy, and its slot comes back when the receiver is done: a full pool is the back-pressure,
// nothing is lost. Each end has a pool of its own, so that two directions cannot wait for each
// other. Frames to the sender's own address come back to it. Sans-IO, one thread.
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
inline constexpr std::uint32_t kDefaultSlots = 1024;
inline constexpr std::uint32_t kWireMtuBytes =
    4200;  ///< Largest IP packet: 4096 of payload and all headers.
inline constexpr std::size_t kMaxAttachments = 64;

class Wire;

/// Frames that an end did not carry, by direction.
struct WireDiscards {
  std::uint64_t sent = 0;  ///< Sent while down, shorter than a header, or a flood without a slot.
  std::uint64_t received = 0;  ///< Would have been received while down.
};

/// One device's end of the wire.
class Attachment {
 public:
  Attachment(Wire& wire, const wire::MacAddress& mac, std::uint32_t slot_count);
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  /// A slot of kSlotBytes, or nothing while all are on their way or kept by receivers.
  std::optional<engine::TxBuffer> allocate();
  void transmit(const engine::TxFrame& frame);
  void discard(const engine::TxBuffer& buffer);

  /// Received frames, at most slot_count, valid until release().
  std::size_t receive(std::span<engine::RxFrame> out);
  void release(std::span<engine::RxFrame> burst);
  bool has_input() const { return head_ != tail_; }

  const wire::MacAddress& mac() const { return mac_; }
  bool is_up() const { return is_up_; }
  /// Down: what is sent, what would be received and what waits to be is dropped and counted.
  void set_up(bool is_up);
  const WireDiscards& discards() const { return discards_; }
  std::size_t free_slots() const { return free_.size(); }

 private:
  friend class Wire;
  struct Slot {
    alignas(64) std::byte bytes[kSlotBytes];
    Attachment* owner;
    std::uint32_t start;
    std::uint32_t length;
  };

  static void give_back(void* handle);
  void deliver(Slot* slot);

  Wire& wire_;
  wire::MacAddress mac_;
  bool is_up_ = true;
  WireDiscards discards_;
  std::unique_ptr<Slot[]> slots_;
  std::vector<Slot*> free_;
  std::vector<Slot*> queue_;  ///< Ring with room for every slot of the whole wire.
  std::vector<Slot*> burst_;  ///< Handed out by receive().
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

/// Joins attachments. They must not outlive it; it must be complete before frames flow.
class Wire {
 public:
  /// `slots_per_attachment`: frames that one device may have on their way.
  explicit Wire(std::uint32_t slots_per_attachment = kDefaultSlots)
      : slots_per_attachment_(slots_per_attachment) {}

  /// Throws std::length_error beyond kMaxAttachments.
  Attachment& attach(const wire::MacAddress& mac);

 private:
  friend class Attachment;
  void forward(Attachment& from, Attachment::Slot* slot);
  void flood(Attachment& from, Attachment::Slot* slot);

  std::uint32_t slots_per_attachment_;
  std::vector<std::unique_ptr<Attachment>> attachments_;
};

}  // namespace rocemu::fabric
