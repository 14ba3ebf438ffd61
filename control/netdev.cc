#include "control/netdev.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

namespace rocemu::control {
namespace {

constexpr char kTapDriver[] = "/dev/net/tun";
constexpr char kNamedNamespaces[] = "/run/netns/";

Error failure(int code, const std::string& what) {
  return {code, what + ": " + std::strerror(code)};
}

// What must be done inside the namespace; descriptors stay bound to it.
struct Parts {
  UniqueFd tap;
  std::optional<Rtnetlink> requests;
  std::optional<Rtnetlink> changes;
};

Result<void> open_tap(const std::string& name, UniqueFd& tap) {
  tap = UniqueFd(::open(kTapDriver, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap.is_open()) return failure(errno == ENOENT ? ENODEV : errno, kTapDriver);
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) {
    return failure(errno, "interface " + name);
  }
  return {};
}

Result<void> open_parts(const std::string& name, Parts& parts) {
  if (auto done = open_tap(name, parts.tap); !done) return done;
  auto requests = Rtnetlink::open(false);
  if (!requests) return requests.error();
  auto changes = Rtnetlink::open(true);
  if (!changes) return changes.error();
  parts.requests = std::move(*requests);
  parts.changes = std::move(*changes);
  return {};
}

// A thread of its own enters the namespace and ends: no way back is needed, so none can fail.
Result<void> run_in_namespace(const std::string& netns,
                              const std::function<Result<void>()>& action) {
  if (netns.empty()) return action();
  const std::string path = netns.find('/') == std::string::npos ? kNamedNamespaces + netns : netns;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return failure(errno, "network namespace " + path);
  Result<void> result;
  std::thread([&] {
    result = ::setns(fd.get(), CLONE_NEWNET) == 0
                 ? action()
                 : Result<void>(failure(errno, "network namespace " + path));
  }).join();
  return result;
}

}  // namespace

Result<Netdev> Netdev::make(const Plan& plan) {
  Parts parts;
  const auto opened = run_in_namespace(plan.netns, [&] { return open_parts(plan.name, parts); });
  if (!opened) return opened.error();
  Netdev out(plan.name, std::move(parts.tap), std::move(*parts.requests),
             std::move(*parts.changes));
  const auto interfaces = out.requests_.list_interfaces();
  if (!interfaces) return interfaces.error();
  const auto found = std::ranges::find(interfaces.value(), plan.name, &InterfaceInfo::name);
  if (found == interfaces.value().end()) return failure(ENODEV, "interface " + plan.name);
  out.index_ = found->index;
  if (auto done = out.requests_.set_up(out.index_, plan.mac, plan.mtu_bytes); !done) {
    return Error{done.error().code, "interface " + plan.name + ": " + done.error().text};
  }
  for (const auto& [address, prefix] : plan.addresses) {
    if (auto done = out.requests_.add_address(out.index_, address, prefix); !done) {
      return Error{done.error().code, address_text(address) + ": " + done.error().text};
    }
  }
  return out;
}

Result<Netdev::View> Netdev::look() {
  const auto interfaces = requests_.list_interfaces();
  if (!interfaces) return interfaces.error();
  const auto addresses = requests_.list_addresses();
  if (!addresses) return addresses.error();
  View view;
  indices_.clear();
  const auto take = [&](const InterfaceInfo& interface) {
    indices_[interface.name] = interface.index;
    for (const InterfaceAddress& a : addresses.value()) {
      if (a.interface_index != interface.index) continue;
      view.addresses.push_back({a.address, interface.vlan_id, interface.name});
    }
  };
  for (const InterfaceInfo& interface : interfaces.value()) {
    if (interface.index != index_) continue;
    view.is_there = true;
    view.is_up = interface.is_up;
    name_ = interface.name;
    take(interface);
  }
  for (const InterfaceInfo& interface : interfaces.value()) {
    if (interface.lower == index_ && interface.vlan_id) take(interface);
  }
  return view;
}

void Netdev::set_carrier(bool is_up) {
  int value = is_up ? 1 : 0;
  // Kernels before 5.0 do not know it; the carrier then stays.
  (void)::ioctl(tap_.get(), TUNSETCARRIER, &value);
}

Result<wire::Gid> Netdev::next_hop(const wire::Gid& destination, const std::string& name) {
  const auto index = indices_.find(name);
  if (index == indices_.end()) return failure(ENODEV, "interface " + name);
  return requests_.next_hop(destination, index->second);
}

}  // namespace rocemu::control
