#include "control/device.h"

#include <algorithm>
#include <random>
#include <unordered_set>

#include "dataplane/wire/neighbour.h"

namespace rocemu::control {
namespace {

// What IPv6, UDP, BTH, the longest extended headers and the ICRC take of the link's MTU (Linux
// reserves the same).
constexpr std::uint32_t kHeaderReserve = 80;

// The wire decides how many addresses it shows us.
constexpr std::size_t kMaxNeighbours = 4096;

Prng random_stream() {
  std::random_device entropy;
  return Prng(std::uint64_t{entropy()} << 32 | entropy());
}

}  // namespace

Device::Device(const DeviceConfig& device_config, EventLoop& event_loop, dpdk::Worker& the_worker)
    : config(device_config),
      loop(event_loop),
      worker(the_worker),
      regions(kMaxMrs, random_stream()) {
  for (const auto& [gid, neighbour_mac] : config.neighbours) neighbours_[gid] = neighbour_mac;
}

std::uint32_t Device::path_mtu_for(const DeviceConfig& config, std::uint32_t link_mtu_bytes) {
  const std::uint32_t ip_bytes =
      config.mtu_bytes != 0 ? std::min(config.mtu_bytes, link_mtu_bytes) : link_mtu_bytes;
  std::uint32_t mtu = transport::kMaxPathMtu;
  while (mtu > transport::kMinPathMtu && mtu + kHeaderReserve > ip_bytes) mtu /= 2;
  return mtu;
}

void Device::attach(std::size_t worker_index) {
  index = worker_index;
  dpdk::Port& port = worker.port(index);
  mac = port.mac();
  max_path_mtu_bytes_ = path_mtu_for(config, port.mtu_bytes());
  gids = make_gid_table(mac, config.addresses);
  std::vector<wire::Gid> own;
  for (const GidEntry& entry : gids) {
    if (own.empty() || own.back() != entry.gid) own.push_back(entry.gid);
  }
  (void)worker.engine(index).set_gids(own);
}

bool Device::is_own_address(const wire::Gid& gid) const {
  return std::ranges::any_of(gids, [&](const GidEntry& entry) { return entry.gid == gid; });
}

std::optional<wire::MacAddress> Device::resolve(const wire::Gid& gid, const wire::Gid& source) {
  if (is_own_address(gid)) return mac;
  const auto found = neighbours_.find(gid);
  if (found != neighbours_.end()) return found->second;
  ask(gid, source);
  return std::nullopt;
}

void Device::ask(const wire::Gid& gid, const wire::Gid& source) {
  const auto frame = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kRequest,
                                                 .sender_mac = mac,
                                                 .sender = source,
                                                 .target_mac = {},
                                                 .target = gid},
                                                config.vlan_tci);
  worker.run([&] { return worker.send_raw(index, frame); });
}

void Device::learn(const wire::Gid& gid, const wire::MacAddress& neighbour_mac) {
  if (config.neighbours.contains(gid)) return;  // static: what the wire says does not count
  if (neighbours_.size() >= kMaxNeighbours && !neighbours_.contains(gid)) {
    const auto victim = std::ranges::find_if(
        neighbours_, [&](const auto& entry) { return !config.neighbours.contains(entry.first); });
    if (victim == neighbours_.end()) return;
    neighbours_.erase(victim);
  }
  neighbours_[gid] = neighbour_mac;
}

std::optional<wire::Gid> Device::on_neighbour_frame(std::span<const std::byte> frame) {
  const auto message = wire::parse_neighbour(frame);
  if (!message || is_own_address(message->sender)) return std::nullopt;
  const bool is_for_us = is_own_address(message->target);
  if (!is_for_us && !neighbours_.contains(message->sender)) return std::nullopt;
  learn(message->sender, message->sender_mac);
  if (is_for_us && message->kind == wire::NeighbourKind::kRequest) {
    const auto answer = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kReply,
                                                    .sender_mac = mac,
                                                    .sender = message->target,
                                                    .target_mac = message->sender_mac,
                                                    .target = message->sender},
                                                   config.vlan_tci);
    worker.run([&] { return worker.send_raw(index, answer); });
  }
  return message->sender;
}

}  // namespace rocemu::control
