#include "control/rtnetlink.h"

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rocemu/base/bytes.h"

namespace rocemu::control {
namespace {

constexpr std::size_t kAnswerBytes = 65536;

constexpr std::size_t aligned(std::size_t n) { return (n + 3) & ~std::size_t{3}; }

// A request as it is put together: header, the family's struct, attributes.
class Request {
 public:
  template <typename Body>
  Request(std::uint16_t type, std::uint16_t flags, const Body& body) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    append(&header, sizeof header);
    append(&body, sizeof body);
  }
  void attribute(std::uint16_t type, const void* data, std::size_t bytes) {
    rtattr head{};
    head.rta_type = type;
    head.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(bytes));
    append(&head, sizeof head);
    append(data, bytes);
  }
  std::vector<std::byte> take() {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  void append(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
    bytes_.resize(aligned(bytes_.size()));
  }

  std::vector<std::byte> bytes_;
};

// Calls `visit(type, data)` for each attribute; stops at the first that does not fit.
template <typename Visit>
void for_each_attribute(std::span<const std::byte> bytes, const Visit& visit) {
  while (bytes.size() >= sizeof(rtattr)) {
    const auto head = load<rtattr>(bytes.data());
    if (head.rta_len < sizeof head || head.rta_len > bytes.size()) return;
    visit(static_cast<std::uint16_t>(head.rta_type & NLA_TYPE_MASK),
          bytes.subspan(sizeof head, head.rta_len - sizeof head));
    bytes = bytes.subspan(std::min(bytes.size(), aligned(head.rta_len)));
  }
}

template <typename T>
std::optional<T> value_of(std::span<const std::byte> data) {
  if (data.size() < sizeof(T)) return std::nullopt;
  return load<T>(data.data());
}

std::optional<wire::Gid> address_of(std::span<const std::byte> data) {
  wire::Gid gid{};
  if (data.size() == 4) return wire::map_ipv4(data.data());
  if (data.size() != gid.size()) return std::nullopt;
  std::memcpy(gid.data(), data.data(), gid.size());
  return gid;
}

std::string text_of(std::span<const std::byte> value) {
  const auto* text = reinterpret_cast<const char*>(value.data());
  return {text, ::strnlen(text, value.size())};
}

std::optional<std::uint16_t> vlan_id_of(std::span<const std::byte> link_info) {
  std::string kind;
  std::span<const std::byte> data;
  std::optional<std::uint16_t> id;
  for_each_attribute(link_info, [&](std::uint16_t type, std::span<const std::byte> value) {
    if (type == IFLA_INFO_KIND) kind = text_of(value);
    if (type == IFLA_INFO_DATA) data = value;
  });
  if (kind != "vlan") return std::nullopt;
  for_each_attribute(data, [&](std::uint16_t type, std::span<const std::byte> value) {
    if (type == IFLA_VLAN_ID) id = value_of<std::uint16_t>(value);
  });
  return id;
}

// The bytes of an address as rtnetlink takes them.
std::span<const std::uint8_t> raw(const wire::Gid& gid) {
  return wire::is_ipv4_mapped(gid) ? std::span(gid).subspan(12) : std::span(gid);
}

std::uint8_t family_of(const wire::Gid& gid) {
  return wire::is_ipv4_mapped(gid) ? AF_INET : AF_INET6;
}

Error failure(int code, const char* what) {
  return {code, std::string(what) + ": " + std::strerror(code)};
}

}  // namespace

Result<Rtnetlink> Rtnetlink::open(bool hears_changes) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.is_open()) return failure(errno, "rtnetlink");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (hears_changes) address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failure(errno, "rtnetlink");
  }
  return Rtnetlink(std::move(fd));
}

void Rtnetlink::drain() {
  std::array<std::byte, 8192> ignored;
  // Bounded: what comes while it is read makes the descriptor readable again.
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::recv(fd_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT | MSG_TRUNC);
    // ENOBUFS: the kernel dropped some, which a look at everything makes good.
    if (n < 0 && errno != ENOBUFS && errno != EINTR) return;
  }
}

Result<void> Rtnetlink::ask(std::vector<std::byte> request, const OnMessage& on_message) {
  const std::uint32_t sequence = ++sequence_;
  std::memcpy(request.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence, sizeof sequence);
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0) return failure(errno, "rtnetlink");
  std::vector<std::byte> buffer(kAnswerBytes);
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failure(n < 0 ? errno : EIO, "rtnetlink");
    auto rest = std::span<const std::byte>(buffer).first(static_cast<std::size_t>(n));
    while (rest.size() >= sizeof(nlmsghdr)) {
      const auto header = load<nlmsghdr>(rest.data());
      if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) {
        return failure(EBADMSG, "rtnetlink");
      }
      const auto body = rest.subspan(sizeof header, header.nlmsg_len - sizeof header);
      rest = rest.subspan(std::min(rest.size(), aligned(header.nlmsg_len)));
      if (header.nlmsg_seq != sequence) continue;
      if (header.nlmsg_type == NLMSG_DONE) return {};
      if (header.nlmsg_type == NLMSG_ERROR) {
        const int code = value_of<int>(body).value_or(-EBADMSG);
        if (code == 0) return {};
        return failure(-code, "rtnetlink");
      }
      on_message(header.nlmsg_type, body);
    }
  }
}

std::optional<InterfaceInfo> parse_interface(std::span<const std::byte> message) {
  if (message.size() < sizeof(ifinfomsg)) return std::nullopt;
  const auto info = load<ifinfomsg>(message.data());
  InterfaceInfo found;
  found.index = info.ifi_index;
  found.is_up = (info.ifi_flags & IFF_UP) != 0;
  bool is_lower_elsewhere = false;
  const auto visit = [&](std::uint16_t attribute, std::span<const std::byte> value) {
    switch (attribute) {
      case IFLA_IFNAME:
        found.name = text_of(value);
        break;
      case IFLA_LINK:
        found.lower = value_of<int>(value).value_or(0);
        break;
      case IFLA_LINK_NETNSID:
        is_lower_elsewhere = true;
        break;
      case IFLA_LINKINFO:
        found.vlan_id = vlan_id_of(value);
        break;
      default:
        break;
    }
  };
  for_each_attribute(message.subspan(sizeof info), visit);
  if (is_lower_elsewhere) found.lower = 0;
  return found;
}

Result<std::vector<InterfaceInfo>> Rtnetlink::list_interfaces() {
  std::vector<InterfaceInfo> out;
  Request request(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{});
  const auto done = ask(request.take(), [&](std::uint16_t type, std::span<const std::byte> body) {
    if (type != RTM_NEWLINK) return;
    if (auto found = parse_interface(body)) out.push_back(std::move(*found));
  });
  if (!done) return done.error();
  return out;
}

Result<std::vector<InterfaceAddress>> Rtnetlink::list_addresses() {
  std::vector<InterfaceAddress> out;
  for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
    ifaddrmsg wanted{};
    wanted.ifa_family = family;
    Request request(RTM_GETADDR, NLM_F_DUMP, wanted);
    const auto done = ask(request.take(), [&](std::uint16_t type, std::span<const std::byte> body) {
      if (type != RTM_NEWADDR || body.size() < sizeof(ifaddrmsg)) return;
      const auto info = load<ifaddrmsg>(body.data());
      std::optional<wire::Gid> address;
      std::optional<wire::Gid> local;
      for_each_attribute(body.subspan(sizeof info),
                         [&](std::uint16_t attribute, std::span<const std::byte> value) {
                           if (attribute == IFA_ADDRESS) address = address_of(value);
                           if (attribute == IFA_LOCAL) local = address_of(value);
                         });
      // On a point-to-point address IFA_ADDRESS is the peer's.
      if (const auto own = local ? local : address; own) {
        out.push_back({static_cast<int>(info.ifa_index), *own});
      }
    });
    if (!done) return done.error();
  }
  return out;
}

Result<void> Rtnetlink::set_up(int interface_index, const wire::MacAddress& mac,
                               std::uint32_t mtu_bytes) {
  ifinfomsg info{};
  info.ifi_index = interface_index;
  info.ifi_change = info.ifi_flags = IFF_UP;
  Request request(RTM_NEWLINK, NLM_F_ACK, info);
  request.attribute(IFLA_ADDRESS, mac.data(), mac.size());
  request.attribute(IFLA_MTU, &mtu_bytes, sizeof mtu_bytes);
  return ask(request.take(), [](std::uint16_t, std::span<const std::byte>) {});
}

Result<void> Rtnetlink::add_address(int interface_index, const wire::Gid& address,
                                    std::uint8_t prefix_length) {
  ifaddrmsg info{};
  info.ifa_family = family_of(address);
  info.ifa_prefixlen = prefix_length;
  info.ifa_flags = IFA_F_NODAD;
  info.ifa_index = static_cast<std::uint32_t>(interface_index);
  Request request(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, info);
  const auto bytes = raw(address);
  request.attribute(IFA_LOCAL, bytes.data(), bytes.size());
  request.attribute(IFA_ADDRESS, bytes.data(), bytes.size());
  return ask(request.take(), [](std::uint16_t, std::span<const std::byte>) {});
}

Result<wire::Gid> Rtnetlink::next_hop(const wire::Gid& destination, int interface_index) {
  rtmsg info{};
  info.rtm_family = family_of(destination);
  const auto bytes = raw(destination);
  info.rtm_dst_len = static_cast<std::uint8_t>(bytes.size() * 8);
  Request request(RTM_GETROUTE, NLM_F_ACK, info);
  request.attribute(RTA_DST, bytes.data(), bytes.size());
  request.attribute(RTA_OIF, &interface_index, sizeof interface_index);
  wire::Gid hop = destination;
  const auto done = ask(request.take(), [&](std::uint16_t type, std::span<const std::byte> body) {
    if (type != RTM_NEWROUTE || body.size() < sizeof(rtmsg)) return;
    for_each_attribute(body.subspan(sizeof(rtmsg)),
                       [&](std::uint16_t attribute, std::span<const std::byte> value) {
                         if (attribute != RTA_GATEWAY) return;
                         if (const auto gateway = address_of(value)) hop = *gateway;
                       });
  });
  if (!done) return done.error();
  return hop;
}

}  // namespace rocemu::control
