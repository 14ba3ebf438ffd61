// One emulated NIC as the control thread sees it: configuration, GID table, memory regions, who
// owns which QP, CQ and SRQ, and the neighbours on its link. Control thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/addresses.h"
#include "control/config.h"
#include "control/event_loop.h"
#include "control/neighbours.h"
#include "control/netdev.h"
#include "dataplane/dpdk/worker.h"
#include "dataplane/memory/mr_table.h"

namespace rocemu::control {

class VerbsContext;

/// Who holds an object of the engine, for events that name it.
struct ObjectOwner {
  VerbsContext* context = nullptr;
  std::uint32_t handle = 0;
};

inline constexpr std::uint32_t kMaxPds = 1u << 16;
inline constexpr std::uint32_t kMaxMrs = 1u << 19;
inline constexpr std::uint32_t kMaxMws = 1u << 19;  ///< Regions and windows share one table.
inline constexpr std::uint32_t kMaxQps = 1u << 18;
inline constexpr std::uint32_t kMaxCqs = 1u << 16;
inline constexpr std::uint32_t kMaxSrqs = 1u << 14;
inline constexpr std::uint32_t kMaxAhs = 1u << 15;
inline constexpr std::uint32_t kGidTableLength = 256;

class Device {
 public:
  Device(const DeviceConfig& device_config, EventLoop& loop, dpdk::Worker& worker);

  /// Largest path MTU (IBTA steps) of a device so configured on a link that carries IP packets of
  /// `link_mtu_bytes`.
  static std::uint32_t path_mtu_for(const DeviceConfig& config, std::uint32_t link_mtu_bytes);

  /// After the worker has the port: MAC, MTU, GIDs from the configuration. Before start().
  void attach(std::size_t worker_index);
  /// Makes the netdev that the configuration asks for; its addresses are the device's from now on.
  /// After attach(), before start(). Errors as Netdev::make's: the device then stays without.
  Result<void> make_netdev();

  // Addresses.

  /// Brings GID table and engine to `addresses` (the link-local one apart, which is always there).
  /// Returns the indices that changed.
  std::vector<std::size_t> set_addresses(const std::vector<DeviceAddress>& addresses);
  /// Null: no such entry, or an empty one.
  const GidEntry* find_gid(std::size_t gid_index) const;
  bool is_own_address(const wire::Gid& gid) const;

  // Neighbours.

  /// The MAC that frames to `gid` go to (a group's, or that of the next hop when a netdev's routes
  /// lead over one), or nothing: then it was asked for on the link, and `awaited` says whose.
  std::optional<wire::MacAddress> resolve(const wire::Gid& gid, const GidEntry& source,
                                          wire::Gid& awaited);
  /// An ARP or ND frame from the link: learns, and answers unless a netdev's kernel does. Returns
  /// the GID learnt, if any. Who asks for us or answers us is remembered, others only when known
  /// already.
  std::optional<wire::Gid> on_neighbour_frame(std::span<const std::byte> frame);

  std::uint32_t max_path_mtu_bytes() const { return max_path_mtu_bytes_; }

  const DeviceConfig config;
  EventLoop& loop;
  dpdk::Worker& worker;
  std::size_t index = 0;  ///< In the worker and in /dev/infiniband/uverbs<index>.
  wire::MacAddress mac{};
  std::vector<GidEntry> gids;
  memory::MrTable regions;
  CounterBlock* counters = nullptr;
  bool is_link_up = true;
  bool is_admin_up = true;   ///< As `rocemu link` says.
  bool is_netdev_up = true;  ///< A netdev that is set down takes the port with it.
  std::optional<Netdev> netdev;

  std::unordered_map<std::uint32_t, ObjectOwner> qp_owners;   ///< By QP number.
  std::unordered_map<std::uint32_t, ObjectOwner> cq_owners;   ///< By CqIndex.
  std::unordered_map<std::uint32_t, ObjectOwner> srq_owners;  ///< By SrqIndex.
  std::uint32_t next_pd = 1;
  std::uint32_t pd_count = 0;
  std::uint32_t ah_count = 0;
  std::uint32_t mw_count = 0;

 private:
  void ask(const wire::Gid& gid, const GidEntry& source);
  const GidEntry* entry_of(const wire::Gid& gid) const;

  Neighbours neighbours_;
  std::uint32_t max_path_mtu_bytes_ = 256;
};

}  // namespace rocemu::control
