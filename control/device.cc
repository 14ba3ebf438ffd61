#include "control/device.h"

#include <algorithm>
#include <random>

#include "dataplane/wire/neighbour.h"

namespace rocemu::control {
namespace {

// What IPv6, UDP, BTH, the longest extended headers and the ICRC take of the link's MTU (Linux
// reserves the same).
constexpr std::uint32_t kHeaderReserve = 80;

// Largest IP packet.
std::uint32_t ip_mtu(const DeviceConfig& config, std::uint32_t link_mtu_bytes) {
  return config.mtu_bytes != 0 ? std::min(config.mtu_bytes, link_mtu_bytes) : link_mtu_bytes;
}

Prng random_stream() {
  std::random_device entropy;
  return Prng(std::uint64_t{entropy()} << 32 | entropy());
}

}  // namespace

Device::Device(const DeviceConfig& device_config, EventLoop& event_loop, dpdk::Worker& the_worker)
    : config(device_config),
      loop(event_loop),
      worker(the_worker),
      regions(kMaxMrs + kMaxMws, random_stream()),
      neighbours_(config.neighbours) {}

std::uint32_t Device::path_mtu_for(const DeviceConfig& config, std::uint32_t link_mtu_bytes) {
  const std::uint32_t ip_bytes = ip_mtu(config, link_mtu_bytes);
  std::uint32_t mtu = transport::kMaxPathMtu;
  while (mtu > transport::kMinPathMtu && mtu + kHeaderReserve > ip_bytes) mtu /= 2;
  return mtu;
}

void Device::attach(std::size_t worker_index) {
  index = worker_index;
  dpdk::Port& port = worker.port(index);
  mac = port.mac();
  max_path_mtu_bytes_ = path_mtu_for(config, port.mtu_bytes());
  std::vector<DeviceAddress> addresses;
  for (const wire::Gid& gid : config.addresses) addresses.push_back({gid, config.vlan_tci, {}});
  (void)set_addresses(addresses);
}

Result<void> Device::make_netdev() {
  Netdev::Plan plan{.name = config.netdev,
                    .netns = config.netns,
                    .mac = mac,
                    .mtu_bytes = ip_mtu(config, worker.port(index).mtu_bytes()),
                    .addresses = {}};
  for (const wire::Gid& gid : config.addresses) {
    plan.addresses.emplace_back(gid, config.prefix_lengths.at(gid));
  }
  auto made = Netdev::make(plan);
  if (!made) return made.error();
  const auto view = made->look();
  if (!view) return view.error();
  netdev = std::move(*made);
  // From here the table is the netdev's; it begins anew, so that its order is Linux's.
  gids.clear();
  (void)set_addresses(view->addresses);
  worker.add_host_link(index, netdev->tap_fd());
  return {};
}

std::vector<std::size_t> Device::set_addresses(const std::vector<DeviceAddress>& addresses) {
  const DeviceAddress base{
      .gid = {}, .vlan_id = config.vlan_tci, .netdev = netdev ? netdev->name() : std::string()};
  auto changed = update_gid_table(gids, kGidTableLength, with_link_local(mac, base, addresses));
  std::vector<wire::Gid> own;
  for (const GidEntry& entry : gids) {
    if (!entry.is_empty() && (own.empty() || own.back() != entry.gid)) own.push_back(entry.gid);
  }
  if (!changed.empty()) worker.run([&] { (void)worker.engine(index).set_gids(own); });
  return changed;
}

const GidEntry* Device::find_gid(std::size_t gid_index) const {
  return gid_index < gids.size() && !gids[gid_index].is_empty() ? &gids[gid_index] : nullptr;
}

const GidEntry* Device::entry_of(const wire::Gid& gid) const {
  const auto found = std::ranges::find(gids, gid, &GidEntry::gid);
  return found == gids.end() || found->is_empty() ? nullptr : &*found;
}

bool Device::is_own_address(const wire::Gid& gid) const { return entry_of(gid) != nullptr; }

std::optional<wire::MacAddress> Device::resolve(const wire::Gid& gid, const GidEntry& source,
                                                wire::Gid& awaited) {
  if (is_own_address(gid)) return mac;
  if (wire::is_multicast(gid)) return multicast_mac(gid);
  wire::Gid hop = gid;
  if (netdev) {
    // Without a route the peer is looked for on the link itself.
    if (const auto found = netdev->next_hop(gid, source.netdev)) hop = found.value();
  }
  const auto found = neighbours_.find(hop, std::chrono::steady_clock::now());
  if (found.is_to_be_asked) ask(hop, source);
  if (!found.mac) awaited = hop;
  return found.mac;
}

void Device::ask(const wire::Gid& gid, const GidEntry& source) {
  const auto frame = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kRequest,
                                                 .sender_mac = mac,
                                                 .sender = source.gid,
                                                 .target_mac = {},
                                                 .target = gid},
                                                source.vlan_id);
  worker.run([&] { return worker.send_raw(index, frame); });
}

std::optional<wire::Gid> Device::on_neighbour_frame(std::span<const std::byte> frame) {
  const auto message = wire::parse_neighbour(frame);
  if (!message || is_own_address(message->sender)) return std::nullopt;
  const GidEntry* asked = entry_of(message->target);
  if (asked == nullptr && !neighbours_.knows(message->sender)) return std::nullopt;
  neighbours_.learn(message->sender, message->sender_mac, std::chrono::steady_clock::now());
  if (asked != nullptr && !netdev && message->kind == wire::NeighbourKind::kRequest) {
    const auto answer = wire::make_neighbour_frame({.kind = wire::NeighbourKind::kReply,
                                                    .sender_mac = mac,
                                                    .sender = message->target,
                                                    .target_mac = message->sender_mac,
                                                    .target = message->sender},
                                                   asked->vlan_id);
    worker.run([&] { return worker.send_raw(index, answer); });
  }
  return message->sender;
}

}  // namespace rocemu::control
