// Input: frames to roles, doorbells, deadlines. Header checks run in one order for every frame,
// each drop has one reason.
#include <algorithm>

#include "dataplane/engine/engine_impl.h"
#include "dataplane/transport/completer.h"
#include "dataplane/transport/completion.h"
#include "dataplane/transport/recovery.h"
#include "dataplane/transport/requester.h"
#include "dataplane/transport/responder.h"

namespace rocemu::engine {
namespace {

constexpr std::uint16_t kDefaultPkey = 0xffff;
// Destination QP of datagrams to a group (9.2.7).
constexpr QpNum kMulticastQp{0xff'ffff};

// Membership bit apart, the keys must be equal and one side a full member (10.9.1.2).
bool is_pkey_accepted(std::uint16_t pkey) { return (pkey & 0x7fff) == (kDefaultPkey & 0x7fff); }

bool is_v1(wire::RoceKind kind) { return kind == wire::RoceKind::kV1; }

bool is_from_peer(const transport::Qp& qp, const wire::Packet& packet) {
  return packet.path.kind == qp.path.kind && packet.path.source == qp.attr.av.headers.destination &&
         packet.path.destination == qp.attr.av.headers.source;
}

bool is_service_of(const wire::OpcodeInfo& info, const transport::Qp& qp) {
  switch (qp.type) {
    case transport::QpType::kRc:
      return info.service == wire::Service::kRc;
    case transport::QpType::kUc:
      return info.service == wire::Service::kUc;
    case transport::QpType::kUd:
    case transport::QpType::kGsi:
      return info.service == wire::Service::kUd;
  }
  return false;
}

// Requests from RTR on, responses from RTS on, neither in error (10.3.1).
bool is_ready_for(const transport::Qp& qp, const wire::OpcodeInfo& info) {
  using enum transport::QpState;
  return qp.state == kRts || qp.state == kSqd ||
         ((qp.state == kRtr || qp.state == kSqe) && info.is_request);
}

}  // namespace

// Frames come in runs for one address: the last one found is looked at first.
bool Engine::Impl::is_own_gid(const wire::Gid& gid) {
  if (last_gid < gids.size() && gids[last_gid] == gid) return true;
  const auto found = std::ranges::find(gids, gid);
  if (found == gids.end()) return false;
  last_gid = static_cast<std::size_t>(found - gids.begin());
  return true;
}

DropReason Engine::Impl::accept_frame(Time now, std::span<const std::byte> frame,
                                      wire::Packet& packet) {
  if (!is_link_up) return DropReason::link_down;
  const DropReason parsed = wire::parse_packet(frame, packet);
  if (parsed != DropReason::none) return parsed;
  const bool is_to_group = wire::is_multicast(packet.path.destination);
  if (is_to_group && groups.members(packet.path.destination).empty()) {
    return DropReason::no_group_member;
  }
  if (!is_to_group && !is_own_gid(packet.path.destination)) return DropReason::wrong_destination;
  if (config.always_icrc && !wire::check_icrc(frame, packet)) {
    counters.add(Counter::rx_icrc_encapsulated);
    return DropReason::bad_icrc;
  }
  if (is_to_group) return deliver_to_group(now, packet);
  transport::Qp* qp = find_qp(packet.bth.destination_qp);
  if (qp == nullptr) return DropReason::unknown_qp;
  if (packet.info().operation == wire::Operation::kCnp) {
    // No reaction point is configured on any QP: seen, and not used.
    counters.add(Counter::rp_cnp_ignored);
    return DropReason::none;
  }
  return deliver_to(now, *qp, packet);
}

DropReason Engine::Impl::deliver_to(Time now, transport::Qp& qp, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (!is_service_of(info, qp)) return DropReason::wrong_service;
  if (!is_ready_for(qp, info)) return DropReason::qp_not_ready;
  if (!is_pkey_accepted(packet.bth.pkey)) return DropReason::bad_pkey;
  if (!qp.is_datagram()) {
    if (is_v1(packet.path.kind) != is_v1(qp.path.kind)) return DropReason::wrong_roce_version;
    if (!is_from_peer(qp, packet)) return DropReason::wrong_source;
  }
  ++qp.stats.rx_packets;
  return info.is_request ? transport::on_request(shard, qp, packet, now)
                         : transport::on_response(shard, qp, packet, now);
}

// Each attached QP gets its copy (10.5.2.1). The frame is dropped when none took it, for the last
// one's reason.
DropReason Engine::Impl::deliver_to_group(Time now, const wire::Packet& packet) {
  if (packet.bth.destination_qp != kMulticastQp) return DropReason::unknown_qp;
  DropReason reason = DropReason::none;
  bool is_taken = false;
  for (const std::uint32_t index : groups.members(packet.path.destination)) {
    const DropReason refused = deliver_to(now, shard.qps[index], packet);
    is_taken |= refused == DropReason::none;
    if (refused != DropReason::none) reason = refused;
  }
  return is_taken ? DropReason::none : reason;
}

void Engine::Impl::receive(Time now, std::span<const std::byte> frame) {
  wire::Packet packet;
  const DropReason reason = accept_frame(now, frame, packet);
  if (reason != DropReason::none) {
    counters.add(reason);
    counters.add(Counter::port_rcv_errors);
    return;
  }
  counters.add(Counter::port_rcv_packets);
  counters.add(wire::is_multicast(packet.path.destination) ? Counter::multicast_rcv_packets
                                                           : Counter::unicast_rcv_packets);
  counters.add(Counter::port_rcv_data, frame.size() / 4);
  if ((packet.path.traffic_class & 3) == 3) counters.add(Counter::np_ecn_marked_roce_packets);
}

void Engine::on_frames(Time now, std::span<RxFrame> frames) {
  for (const RxFrame& frame : frames) impl_->receive(now, frame.bytes());
  transport::commit_moves(impl_->shard, now);
  transport::forget_work_requests(impl_->shard);
}

void Engine::on_doorbells(Time now, std::span<const QpNum> qps) {
  for (const QpNum number : qps) {
    transport::Qp* qp = impl_->find_qp(number);
    if (qp != nullptr) transport::on_doorbell(impl_->shard, *qp, now);
  }
}

void Engine::on_cq_armed(Time, CqIndex cq_index) {
  transport::Shard& shard = impl_->shard;
  if (!shard.cqs.is_live(cq_index.value)) return;
  transport::Cq& cq = shard.cqs[cq_index.value];
  // Completions that the last event announced raise no second one: programs that arm before they
  // poll (perftest) count events. Those that came while the CQ was not armed do: programs that arm
  // after they polled (UCX) would wait for ever.
  if (!cq.is_armable || cq.producer == cq.announced) return;
  if (!shard.queues.has_unpolled(cq.ring, cq.producer)) return;
  if (!shard.queues.take_arm(cq.arm, true)) return;
  cq.announced = cq.producer;
  shard.events.on_completion_event(cq_index);
}

void Engine::on_deadline(Time now) {
  transport::Shard& shard = impl_->shard;
  while (const auto owner = shard.deadlines.pop_due(now)) {
    if (shard.qps.is_live(*owner)) transport::run_timers(shard, shard.qps[*owner], now);
  }
  transport::forget_work_requests(shard);
}

std::optional<Time> Engine::next_deadline() const { return impl_->shard.deadlines.next(); }

}  // namespace rocemu::engine
