#include "dataplane/fabric/wire.h"

#include <cstring>
#include <stdexcept>

#include "rocemu/base/check.h"

namespace rocemu::fabric {
namespace {

constexpr std::size_t kQueueSlots = kSlotsPerAttachment * kMaxAttachments;  // a power of two

bool is_group(const std::byte* mac) { return (mac[0] & std::byte{1}) != std::byte{0}; }

}  // namespace

Attachment::Attachment(Wire& wire, const wire::MacAddress& mac)
    : wire_(wire),
      mac_(mac),
      slots_(std::make_unique<Slot[]>(kSlotsPerAttachment)),
      queue_(kQueueSlots) {
  free_.reserve(kSlotsPerAttachment);
  burst_.reserve(kSlotsPerAttachment);
  for (std::uint32_t i = kSlotsPerAttachment; i != 0; --i) {
    slots_[i - 1].owner = this;
    free_.push_back(&slots_[i - 1]);
  }
}

std::optional<engine::TxBuffer> Attachment::allocate() {
  if (free_.empty()) return std::nullopt;
  Slot* slot = free_.back();
  free_.pop_back();
  return engine::TxBuffer{slot->bytes, kSlotBytes, slot};
}

void Attachment::discard(const engine::TxBuffer& buffer) { give_back(buffer.handle); }

void Attachment::transmit(const engine::TxFrame& frame) {
  auto* slot = static_cast<Slot*>(frame.buffer.handle);
  ROCEMU_CHECK(frame.headers_start + std::size_t{frame.length} <= kSlotBytes);
  slot->start = frame.headers_start;
  slot->length = frame.length;
  if (!is_up_) {
    ++dropped_;
    give_back(slot);
    return;
  }
  wire_.forward(*this, slot);
}

void Attachment::deliver(Slot* slot) {
  if (!is_up_) {
    ++dropped_;
    give_back(slot);
    return;
  }
  queue_[tail_++ % kQueueSlots] = slot;
}

std::size_t Attachment::receive(std::span<engine::RxFrame> out) {
  std::size_t count = 0;
  burst_.clear();
  while (count < out.size() && head_ != tail_) {
    Slot* slot = queue_[head_++ % kQueueSlots];
    burst_.push_back(slot);
    out[count++] = engine::RxFrame({slot->bytes + slot->start, slot->length}, slot, &give_back);
  }
  return count;
}

void Attachment::release(std::span<engine::RxFrame> burst) {
  ROCEMU_CHECK(burst.size() == burst_.size());
  for (std::size_t i = 0; i < burst.size(); ++i) {
    if (!burst[i].is_taken()) give_back(burst_[i]);
  }
  burst_.clear();
}

void Attachment::give_back(void* handle) {
  auto* slot = static_cast<Slot*>(handle);
  slot->owner->free_.push_back(slot);
}

Attachment& Wire::attach(const wire::MacAddress& mac) {
  if (attachments_.size() == kMaxAttachments) {
    throw std::length_error("a wire joins at most 64 devices");
  }
  attachments_.push_back(std::make_unique<Attachment>(*this, mac));
  return *attachments_.back();
}

void Wire::forward(Attachment& from, Attachment::Slot* slot) {
  const std::byte* destination = slot->bytes + slot->start;
  if (!is_group(destination)) {
    for (auto& to : attachments_) {
      if (std::memcmp(to->mac_.data(), destination, to->mac_.size()) == 0) {
        to->deliver(slot);
        return;
      }
    }
  }
  // A group, or an address that nobody here has: everybody else gets a copy, the last one the frame
  // itself.
  Attachment* last = nullptr;
  for (auto& to : attachments_) {
    if (to.get() == &from) continue;
    if (last != nullptr) {
      const auto copy = from.allocate();
      if (!copy) {
        ++from.dropped_;
      } else {
        auto* twin = static_cast<Attachment::Slot*>(copy->handle);
        std::memcpy(twin->bytes + slot->start, slot->bytes + slot->start, slot->length);
        twin->start = slot->start;
        twin->length = slot->length;
        last->deliver(twin);
      }
    }
    last = to.get();
  }
  if (last != nullptr) {
    last->deliver(slot);
  } else {
    Attachment::give_back(slot);
  }
}

}  // namespace rocemu::fabric
