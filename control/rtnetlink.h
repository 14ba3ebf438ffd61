// The little of rtnetlink that a netdev needs: set an interface up, give it addresses, list VLAN
// interfaces and addresses, hear of changes. Requests are answered by the kernel at once: nothing
// here waits for anybody. A socket belongs to the network namespace that it was opened in. Control
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/unique_fd.h"
#include "dataplane/wire/headers.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// An interface: the netdev itself or a VLAN on it.
struct InterfaceInfo {
  int index = 0;
  std::string name;
  bool is_up = false;  ///< Administratively (IFF_UP).
  int lower = 0;       ///< VLAN: the interface that it stands on; else 0.
  std::optional<std::uint16_t> vlan_id;
};

struct InterfaceAddress {
  int interface_index = 0;
  wire::Gid address{};
};

/// What an RTM_NEWLINK message says (its bytes behind the netlink header); nothing when it is cut.
std::optional<InterfaceInfo> parse_interface(std::span<const std::byte> message);

class Rtnetlink {
 public:
  /// In the caller's network namespace. With `hears_changes` the descriptor becomes readable when
  /// an interface or an address changes. EPROTONOSUPPORT, EMFILE.
  static Result<Rtnetlink> open(bool hears_changes);

  int fd() const { return fd_.get(); }
  /// Reads what waits at a socket that hears changes; the text of it does not matter.
  void drain();

  Result<std::vector<InterfaceInfo>> list_interfaces();
  /// IPv4 addresses of all interfaces in the kernel's order, then IPv6.
  Result<std::vector<InterfaceAddress>> list_addresses();
  /// MAC address and MTU, then up. EPERM.
  Result<void> set_up(int interface_index, const wire::MacAddress& mac, std::uint32_t mtu_bytes);
  /// Without duplicate address detection: the configuration says whose it is. EPERM.
  Result<void> add_address(int interface_index, const wire::Gid& address,
                           std::uint8_t prefix_length);
  /// The neighbour that packets to `destination` go to, `destination` itself when it is on the
  /// link. ENETUNREACH and the like when no route leads there over `interface_index`.
  Result<wire::Gid> next_hop(const wire::Gid& destination, int interface_index);

 private:
  using OnMessage = std::function<void(std::uint16_t type, std::span<const std::byte> body)>;
  /// Sends one request and reads its answers until the acknowledgement or the end of the dump.
  Result<void> ask(std::vector<std::byte> request, const OnMessage& on_message);

  explicit Rtnetlink(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace rocemu::control
