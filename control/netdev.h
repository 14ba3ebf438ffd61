// The netdev of a device: a TAP interface in a network namespace of choice, made at start and gone
// with the daemon. The kernel behind it speaks ARP, IP and TCP on the device's link (the worker
// carries the frames), and its addresses, those of VLAN interfaces on it included, are the
// device's. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/addresses.h"
#include "control/rtnetlink.h"
#include "control/unique_fd.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

class Netdev {
 public:
  struct Plan {
    std::string name;   ///< Of the interface; at most 15 characters.
    std::string netns;  ///< Name below /run/netns or a path; empty: the daemon's own.
    wire::MacAddress mac{};
    std::uint32_t mtu_bytes = 0;
    /// Given to the interface, with prefix lengths.
    std::vector<std::pair<wire::Gid, std::uint8_t>> addresses;
  };
  /// Makes the interface and sets it up. EPERM, EACCES, ENODEV: it cannot be made here (no right,
  /// or no TAP driver); ENOENT: no such namespace; EBUSY: the name is taken.
  static Result<Netdev> make(const Plan& plan);

  const std::string& name() const { return name_; }
  /// The worker's descriptor (dataplane/dpdk/host_link.h).
  int tap_fd() const { return tap_.get(); }
  /// Readable when interfaces or addresses change; drain_changes() makes it quiet again.
  int changes_fd() const { return changes_.fd(); }
  void drain_changes() { changes_.drain(); }

  /// What it is now.
  struct View {
    bool is_there = false;  ///< False: somebody removed it.
    bool is_up = false;
    std::vector<DeviceAddress> addresses;
  };
  Result<View> look();
  /// The link's state as the kernel's carrier.
  void set_carrier(bool is_up);
  /// As Rtnetlink::next_hop, out of the interface `name` (this one or a VLAN on it).
  Result<wire::Gid> next_hop(const wire::Gid& destination, const std::string& name);

 private:
  Netdev(std::string name, UniqueFd tap, Rtnetlink requests, Rtnetlink changes)
      : name_(std::move(name)),
        tap_(std::move(tap)),
        requests_(std::move(requests)),
        changes_(std::move(changes)) {}

  std::string name_;
  UniqueFd tap_;
  Rtnetlink requests_;
  Rtnetlink changes_;
  int index_ = 0;
  std::map<std::string, int> indices_;  ///< Of the interfaces of the last look().
};

}  // namespace rocemu::control
