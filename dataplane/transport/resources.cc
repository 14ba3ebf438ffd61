#include "dataplane/transport/resources.h"

#include <algorithm>

#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

std::uint32_t find_resource(const Shard& shard, const Qp& qp, Psn psn) {
  for (std::uint32_t i = qp.resource_head; i != kNoIndex; i = shard.resources[i].next) {
    const ResponderResource& r = shard.resources[i];
    if (distance(r.first_psn, psn) >= 0 && distance(psn, r.last_psn()) >= 0) return i;
  }
  return kNoIndex;
}

// A requester that repeats one request repeats all after it: what is due from there on will be
// asked for again.
void cancel_from(Shard& shard, Qp& qp, std::uint32_t index) {
  for (std::uint32_t i = index; i != kNoIndex; i = shard.resources[i].next) {
    ResponderResource& r = shard.resources[i];
    if (!r.is_due()) continue;
    r.next_packet = r.end_packet;
    --qp.due_resources;
  }
}

}  // namespace

MakeResult make_resource(Shard& shard, Qp& qp) {
  if (qp.resource_count >= qp.attr.max_dest_rd_atomic) {
    const std::uint32_t oldest = qp.resource_head;
    ROCEMU_CHECK(oldest != kNoIndex);
    if (shard.resources[oldest].is_due()) return {};
    qp.resource_head = shard.resources[oldest].next;
    if (qp.resource_head == kNoIndex) qp.resource_tail = kNoIndex;
    shard.resources.release(oldest);
    --qp.resource_count;
  }
  const auto index = shard.resources.acquire();
  if (!index) return {kNoIndex, true};
  shard.resources[*index] = ResponderResource{};
  if (qp.resource_tail == kNoIndex) {
    qp.resource_head = *index;
  } else {
    shard.resources[qp.resource_tail].next = *index;
  }
  qp.resource_tail = *index;
  ++qp.resource_count;
  return {*index, false};
}

void drop_newest_resource(Shard& shard, Qp& qp) {
  const std::uint32_t newest = qp.resource_tail;
  ROCEMU_CHECK(newest != kNoIndex);
  std::uint32_t before = kNoIndex;
  for (std::uint32_t i = qp.resource_head; i != newest; i = shard.resources[i].next) before = i;
  if (before == kNoIndex) {
    qp.resource_head = kNoIndex;
  } else {
    shard.resources[before].next = kNoIndex;
  }
  qp.resource_tail = before;
  --qp.resource_count;
  shard.resources.release(newest);
}

void make_due(Shard& shard, Qp& qp, ResponderResource& resource, std::uint32_t first,
              std::uint32_t end) {
  if (!resource.is_due()) ++qp.due_resources;
  resource.next_packet = first;
  resource.end_packet = end;
  resource.starts_anew = true;
  schedule(shard, qp);
}

ResponderResource& oldest_due(Shard& shard, Qp& qp) {
  std::uint32_t i = qp.resource_head;
  while (!shard.resources[i].is_due()) i = shard.resources[i].next;
  return shard.resources[i];
}

void cancel_due(Shard& shard, Qp& qp) { cancel_from(shard, qp, qp.resource_head); }

bool replay_read(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const std::uint32_t index = find_resource(shard, qp, packet.bth.psn);
  if (index == kNoIndex) return false;
  ResponderResource& resource = shard.resources[index];
  if (resource.is_atomic || packet.reth.rkey != resource.rkey) return false;
  const auto first = static_cast<std::uint32_t>(distance(resource.first_psn, packet.bth.psn));
  const std::uint64_t skip = std::uint64_t{first} * qp.path_mtu;
  // Inside what was asked for at first (C9-106): the same bytes at the same PSNs.
  if (packet.reth.va != resource.va + skip || packet.reth.dma_length > resource.length - skip) {
    return false;
  }
  const std::uint32_t length = packet.reth.dma_length;
  const std::uint32_t count =
      std::max(1u, length / qp.path_mtu + (length % qp.path_mtu != 0 ? 1 : 0));
  // Only the original's end may be shorter than a packet.
  if (skip + length != resource.length && length % qp.path_mtu != 0) return false;
  cancel_from(shard, qp, index);
  make_due(shard, qp, resource, first, first + count);
  return true;
}

bool replay_atomic(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const std::uint32_t index = find_resource(shard, qp, packet.bth.psn);
  if (index == kNoIndex || !shard.resources[index].is_atomic) return false;
  cancel_from(shard, qp, index);
  make_due(shard, qp, shard.resources[index], 0, 1);
  return true;
}

}  // namespace rocemu::transport
