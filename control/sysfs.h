// The emulated /sys: a tree of real files below the run-time directory, laid out as Linux lays out
// its InfiniBand classes, so that libibverbs, perftest, UCX and plain `cat` find what they look
// for. Files hold what changes seldom; counters are listed here but read live, through the socket.
// A device without a netdev has no gid_attrs/ndevs entries and no device/net: libibverbs then
// reports interface 0.
// Control thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/addresses.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// What the tree says of one device.
struct SysfsDevice {
  std::string name;
  std::uint64_t node_guid = 0;
  wire::MacAddress mac{};
  std::vector<GidEntry> gids;
  std::uint32_t gid_table_length = 0;
  bool is_link_up = true;
  std::string netdev;  ///< Empty: none.
};

/// Removes what an earlier daemon left at `root` and writes the tree; device i becomes uverbs<i>.
Result<void> write_sysfs(const std::string& root, const std::vector<SysfsDevice>& devices);
/// Rewrites state and phys_state of the port.
Result<void> write_link_state(const std::string& root, const std::string& device, bool is_link_up);

/// Rewrites these entries of the GID table: gids, gid_attrs/types, gid_attrs/ndevs.
Result<void> write_gid_entries(const std::string& root, const std::string& device,
                               const std::vector<GidEntry>& gids,
                               const std::vector<std::size_t>& indices);

/// A counter attribute's place: "class/infiniband/<device>/ports/1/{counters,hw_counters}/<name>".
struct CounterPath {
  std::string device;
  std::size_t counter_index = 0;  ///< In kCounterInfo.
};
/// ENOENT for any other path.
Result<CounterPath> parse_counter_path(const std::string& attribute);

}  // namespace rocemu::control
