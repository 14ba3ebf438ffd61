#include "tests/interop/conversation.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rocemu::interop {
namespace {

// A rule that dropped every `of_every`th packet (from 0: number `which`) into a guest, behind the
// capture point.
struct Loss {
  Side into = Side::kB;
  std::size_t of_every = 1;
  std::size_t which = 0;
};

const std::map<std::string, Loss>& losses() {
  static const std::map<std::string, Loss> rules = {
      {"loss_req_write.pcap", {Side::kB, 17, 8}}, {"loss_req_send.pcap", {Side::kB, 17, 8}},
      {"loss_req_mix.pcap", {Side::kB, 17, 8}},   {"loss_req_read.pcap", {Side::kB, 2, 0}},
      {"loss_resp_write.pcap", {Side::kA, 2, 0}}, {"loss_resp_send.pcap", {Side::kA, 2, 0}},
      {"loss_last_write.pcap", {Side::kB, 3, 1}}, {"loss_atomic.pcap", {Side::kA, 3, 1}},
      {"retry_exhaust.pcap", {Side::kB, 1, 0}},   {"read_livelock.pcap", {Side::kA, 1, 0}},
  };
  return rules;
}

// Host a is 10.77.0.1, fd77::1 or a link-local address that ends so; b is 2.
Side side_of(const wire::Gid& source) { return source[15] == 1 ? Side::kA : Side::kB; }

// What netem corrupted outside the ICRC's cover is dropped by the guest's kernel below RoCE.
bool is_taken_by_kernel(const wire::PathHeaders& path) {
  constexpr wire::MacAddress kGuest = {2, 0, 0, 0, 0xaa, 0};
  const auto is_guest = [&](const wire::MacAddress& mac) {
    return std::equal(mac.begin(), mac.end() - 1, kGuest.begin());
  };
  return path.udp_checksum == 0 && is_guest(path.source_mac) && is_guest(path.destination_mac);
}

bool is_connected(wire::Service service) {
  return service == wire::Service::kRc || service == wire::Service::kUc;
}

}  // namespace

std::vector<const Step*> Conversation::of(Side from, bool is_request) const {
  std::vector<const Step*> out;
  for (const Step& step : steps) {
    if (step.from == from && step.packet.info().is_request == is_request) out.push_back(&step);
  }
  return out;
}

std::uint32_t Conversation::path_mtu() const {
  std::size_t segment = 0;
  std::size_t longest = 256;
  for (const Step& step : steps) {
    const auto position = step.packet.info().position;
    const std::size_t bytes = step.packet.payload.size();
    if (position == wire::Position::kFirst || position == wire::Position::kMiddle) segment = bytes;
    longest = std::max(longest, bytes);
  }
  if (segment != 0) return static_cast<std::uint32_t>(segment);
  std::uint32_t mtu = 1024;
  while (mtu < longest) mtu *= 2;
  return mtu;
}

std::vector<Conversation> split(const std::string& capture, const std::vector<Frame>& frames) {
  std::vector<Conversation> out;
  std::map<std::uint16_t, std::size_t> by_port;
  std::map<std::tuple<std::uint16_t, Side>, QpNum> destination;
  std::array<std::size_t, 2> count{};
  const auto rule = losses().find(capture);
  for (const Frame& frame : frames) {
    Step step;
    if (wire::classify_frame(frame) != wire::FrameClass::kRoce ||
        wire::parse_packet(frame, step.packet) != DropReason::none ||
        !wire::check_icrc(frame, step.packet) || !is_taken_by_kernel(step.packet.path)) {
      continue;
    }
    step.from = side_of(step.packet.path.source);
    const Side to = other(step.from);
    const std::size_t n = count[static_cast<std::size_t>(to)]++;
    step.has_arrived = rule == losses().end() || rule->second.into != to ||
                       n % rule->second.of_every != rule->second.which;
    if (!is_connected(step.packet.info().service)) continue;
    const std::uint16_t port = step.packet.path.udp_source_port;
    const QpNum qp = step.packet.bth.destination_qp;
    const auto known = destination.find({port, to});
    const bool is_another = known != destination.end() && known->second != qp;
    if (is_another || !by_port.contains(port)) {
      by_port[port] = out.size();
      out.emplace_back().service = step.packet.info().service;
      destination.erase({port, Side::kA});
      destination.erase({port, Side::kB});
    }
    destination[{port, to}] = qp;
    out[by_port[port]].steps.push_back(step);
  }
  return out;
}

}  // namespace rocemu::interop
