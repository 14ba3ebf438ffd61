// Who gets a frame: the attachment that has its destination address, else everybody but its sender.
#include "dataplane/fabric/wire.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "rocemu/base/check.h"

namespace rocemu::fabric {
namespace {

constexpr std::uint32_t kEthernetHeaderBytes = 14;

bool is_group(const std::byte* mac) { return (mac[0] & std::byte{1}) != std::byte{0}; }

}  // namespace

Attachment::Attachment(Wire& wire, const wire::MacAddress& mac, std::uint32_t slot_count)
    : wire_(wire), mac_(mac), slots_(std::make_unique_for_overwrite<Slot[]>(slot_count)) {
  free_.reserve(slot_count);
  burst_.reserve(slot_count);
  for (std::uint32_t i = slot_count; i != 0; --i) {
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
  ROCEMU_CHECK(slot->owner == this);
  ROCEMU_CHECK(frame.headers_start + std::size_t{frame.length} <= kSlotBytes);
  slot->start = frame.headers_start;
  slot->length = frame.length;
  if (!is_up_ || slot->length < kEthernetHeaderBytes) {
    ++discards_.sent;
    give_back(slot);
    return;
  }
  wire_.forward(*this, slot);
}

void Attachment::deliver(Slot* slot) {
  if (!is_up_) {
    ++discards_.received;
    give_back(slot);
    return;
  }
  ROCEMU_CHECK(tail_ - head_ < queue_.size());
  queue_[tail_++ % queue_.size()] = slot;
}

std::size_t Attachment::receive(std::span<engine::RxFrame> out) {
  const std::size_t room = std::min(out.size(), burst_.capacity());
  std::size_t count = 0;
  burst_.clear();
  while (count < room && head_ != tail_) {
    Slot* slot = queue_[head_++ % queue_.size()];
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

void Attachment::set_up(bool is_up) {
  is_up_ = is_up;
  while (!is_up_ && head_ != tail_) {
    ++discards_.received;
    give_back(queue_[head_++ % queue_.size()]);
  }
}

void Attachment::give_back(void* handle) {
  auto* slot = static_cast<Slot*>(handle);
  slot->owner->free_.push_back(slot);
}

Attachment& Wire::attach(const wire::MacAddress& mac) {
  if (attachments_.size() == kMaxAttachments) {
    throw std::length_error("a wire joins at most 64 devices");
  }
  attachments_.push_back(std::make_unique<Attachment>(*this, mac, slots_per_attachment_));
  const std::size_t all_slots = attachments_.size() * slots_per_attachment_;
  for (auto& attachment : attachments_) {
    ROCEMU_CHECK(!attachment->has_input());
    attachment->queue_.resize(all_slots);
    attachment->head_ = attachment->tail_ = 0;
  }
  return *attachments_.back();
}

void Wire::forward(Attachment& from, Attachment::Slot* slot) {
  const std::byte* destination = slot->bytes + slot->start;
  if (!is_group(destination)) {
    for (auto& to : attachments_) {
      if (std::memcmp(to->mac_.data(), destination, to->mac_.size()) != 0) continue;
      to->deliver(slot);
      return;
    }
  }
  flood(from, slot);
}

// A group, or an address that nobody here has: everybody else gets a copy, the last one the frame
// itself.
void Wire::flood(Attachment& from, Attachment::Slot* slot) {
  Attachment* last = nullptr;
  for (auto& to : attachments_) {
    if (to.get() == &from) continue;
    Attachment* previous = std::exchange(last, to.get());
    if (previous == nullptr) continue;
    const auto copy = from.allocate();
    if (!copy) {
      ++from.discards_.sent;
      continue;
    }
    auto* twin = static_cast<Attachment::Slot*>(copy->handle);
    std::memcpy(twin->bytes + slot->start, slot->bytes + slot->start, slot->length);
    twin->start = slot->start;
    twin->length = slot->length;
    previous->deliver(twin);
  }
  if (last != nullptr) {
    last->deliver(slot);
  } else {
    Attachment::give_back(slot);
  }
}

}  // namespace rocemu::fabric
