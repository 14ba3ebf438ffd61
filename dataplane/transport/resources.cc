#include "dataplane/transport/resources.h"

#include <algorithm>
#include <bit>

#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

// Rounded up to a power of two: rxe's requester rounds its own limit so (departures.md).
std::uint32_t limit_of(const Qp& qp) {
  return std::bit_ceil(std::uint32_t{qp.attr.max_dest_rd_atomic});
}

std::uint32_t find_resource(const Shard& shard, const Qp& qp, Psn psn) {
  for (std::uint32_t i = qp.resource_head; i != kNoIndex; i = shard.resources[i].next) {
    const ResponderResource& r = shard.resources[i];
    if (distance(r.first_psn, psn) >= 0 && distance(psn, r.last_psn()) >= 0) return i;
  }
  return kNoIndex;
}

void cancel(Qp& qp, ResponderResource& resource) {
  if (!resource.is_due()) return;
  resource.next_packet = resource.end_packet;
  --qp.due_resources;
}

// Links a resource behind `before`, or at the head.
void link_after(Shard& shard, Qp& qp, std::uint32_t before, std::uint32_t index) {
  std::uint32_t& link = before == kNoIndex ? qp.resource_head : shard.resources[before].next;
  shard.resources[index].next = link;
  link = index;
  if (qp.resource_tail == before) qp.resource_tail = index;
  ++qp.resource_count;
}

void release(Shard& shard, Qp& qp, std::uint32_t index) {
  std::uint32_t before = kNoIndex;
  for (std::uint32_t i = qp.resource_head; i != index; i = shard.resources[i].next) before = i;
  cancel(qp, shard.resources[index]);
  const std::uint32_t next = shard.resources[index].next;
  (before == kNoIndex ? qp.resource_head : shard.resources[before].next) = next;
  if (qp.resource_tail == index) qp.resource_tail = before;
  --qp.resource_count;
  shard.resources.release(index);
}

// Packets [first, end) are due. What is due already and lies in front of them stays so.
void make_range_due(Shard& shard, Qp& qp, ResponderResource& resource, std::uint32_t first,
                    std::uint32_t end) {
  if (!resource.is_due()) ++qp.due_resources;
  resource.next_packet = first;
  resource.end_packet = end;
  // rxe goes on in the middle of the response that it began (departures.md).
  resource.starts_anew = first == 0 || !shard.config.is_rxe;
  schedule(shard, qp);
}

// A duplicate of a READ that is not kept: executed anew when all of it lies before what is
// expected and the memory may still be read.
bool execute_again(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const wire::Reth& reth = packet.reth;
  const Psn psn = packet.bth.psn;
  const std::uint32_t count = read_packets(reth.dma_length, qp.path_mtu);
  const std::int32_t end = distance(psn + static_cast<std::int32_t>(count), qp.expected_psn);
  if (end < 0 || reth.dma_length > kMaxMessageBytes || qp.attr.max_dest_rd_atomic == 0 ||
      (qp.attr.access & memory::kAccessRemoteRead) == 0 || qp.resource_count >= 2 * limit_of(qp)) {
    return false;
  }
  if (reth.dma_length != 0 &&
      lookup_remote(shard, qp, reth.rkey, reth.va, reth.dma_length, memory::kAccessRemoteRead)
              .fault != memory::MrFault::kNone) {
    return false;
  }
  const auto index = shard.resources.acquire();
  if (!index) return false;
  ResponderResource& resource = shard.resources[*index] = ResponderResource{};
  resource.first_psn = psn;
  resource.psn_count = count;
  resource.msn = qp.msn;
  resource.rkey = reth.rkey;
  resource.va = reth.va;
  resource.length = reth.dma_length;
  resource.is_replay = true;
  std::uint32_t before = kNoIndex;
  for (std::uint32_t i = qp.resource_head; i != kNoIndex; i = shard.resources[i].next) {
    if (distance(shard.resources[i].first_psn, psn) < 0) break;
    before = i;
  }
  link_after(shard, qp, before, *index);
  make_range_due(shard, qp, resource, 0, count);
  return true;
}

}  // namespace

std::uint32_t read_packets(std::uint32_t length, std::uint32_t path_mtu) {
  return std::max(1u, length / path_mtu + (length % path_mtu != 0 ? 1 : 0));
}

MakeResult make_resource(Shard& shard, Qp& qp) {
  while (qp.resource_count >= limit_of(qp)) {
    const ResponderResource& oldest = shard.resources[qp.resource_head];
    // Not answered yet: one too many is outstanding. A replay that is due is needed no more, or
    // the requester would not have room for another request.
    if (oldest.is_due() && !oldest.is_replay) return {};
    release(shard, qp, qp.resource_head);
  }
  const auto index = shard.resources.acquire();
  if (!index) return {kNoIndex, true};
  shard.resources[*index] = ResponderResource{};
  link_after(shard, qp, qp.resource_tail, *index);
  return {*index, false};
}

void drop_newest_resource(Shard& shard, Qp& qp) {
  ROCEMU_CHECK(qp.resource_tail != kNoIndex);
  release(shard, qp, qp.resource_tail);
}

void make_due(Shard& shard, Qp& qp, ResponderResource& resource) {
  make_range_due(shard, qp, resource, 0, resource.psn_count);
}

std::uint32_t oldest_due(const Shard& shard, const Qp& qp) {
  std::uint32_t i = qp.resource_head;
  while (!shard.resources[i].is_due()) i = shard.resources[i].next;
  return i;
}

void finish_packet(Shard& shard, Qp& qp, std::uint32_t index) {
  ResponderResource& resource = shard.resources[index];
  resource.starts_anew = false;
  if (++resource.next_packet != resource.end_packet) return;
  --qp.due_resources;
  resource.is_replay = true;
  const bool is_pool_half_full = shard.resources.in_use() > shard.resources.capacity() / 2;
  if (resource.kind == ResponderResource::Kind::kRead && is_pool_half_full)
    release(shard, qp, index);
}

void cancel_due(Shard& shard, Qp& qp) {
  for (std::uint32_t i = qp.resource_head; i != kNoIndex; i = shard.resources[i].next) {
    cancel(qp, shard.resources[i]);
  }
}

void cancel_due_after(Shard& shard, Qp& qp, Psn psn) {
  for (std::uint32_t i = qp.resource_head; i != kNoIndex; i = shard.resources[i].next) {
    if (distance(psn, shard.resources[i].first_psn) > 0) cancel(qp, shard.resources[i]);
  }
}

bool replay_read(Shard& shard, Qp& qp, const wire::Packet& packet) {
  const std::uint32_t index = find_resource(shard, qp, packet.bth.psn);
  if (index == kNoIndex) return execute_again(shard, qp, packet);
  ResponderResource& resource = shard.resources[index];
  if (resource.kind != ResponderResource::Kind::kRead || packet.reth.rkey != resource.rkey)
    return false;
  const auto first = static_cast<std::uint32_t>(distance(resource.first_psn, packet.bth.psn));
  const std::uint64_t skip = std::uint64_t{first} * qp.path_mtu;
  // Inside what was asked for at first (C9-106): the same bytes at the same PSNs.
  if (packet.reth.va != resource.va + skip || packet.reth.dma_length > resource.length - skip) {
    return false;
  }
  const std::uint32_t length = packet.reth.dma_length;
  // Only the original's end may be shorter than a packet.
  if (skip + length != resource.length && length % qp.path_mtu != 0) return false;
  const std::uint32_t end = first + read_packets(length, qp.path_mtu);
  // What is asked for may be on its way already: a copy of the request, or an impatient requester.
  if (resource.is_due() && resource.next_packet <= first && end <= resource.end_packet) return true;
  make_range_due(shard, qp, resource, first, end);
  return true;
}

bool replay_result(Shard& shard, Qp& qp, const wire::Packet& packet, ResponderResource::Kind kind) {
  const std::uint32_t index = find_resource(shard, qp, packet.bth.psn);
  if (index == kNoIndex || shard.resources[index].kind != kind) return false;
  if (!shard.resources[index].is_due()) make_due(shard, qp, shard.resources[index]);
  return true;
}

}  // namespace rocemu::transport
