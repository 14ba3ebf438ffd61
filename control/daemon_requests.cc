// The daemon's answers to the rocemu tool.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/daemon.h"

namespace rocemu::control {
namespace {

using nlohmann::json;

json refusal(const std::string& text) { return {{"ok", false}, {"error", text}}; }

const char* state_text(transport::QpState state) {
  switch (state) {
    case transport::QpState::kReset:
      return "RESET";
    case transport::QpState::kInit:
      return "INIT";
    case transport::QpState::kRtr:
      return "RTR";
    case transport::QpState::kRts:
      return "RTS";
    case transport::QpState::kSqd:
      return "SQD";
    case transport::QpState::kSqe:
      return "SQE";
    case transport::QpState::kErr:
      return "ERR";
  }
  return "?";
}

const char* type_text(transport::QpType type) {
  switch (type) {
    case transport::QpType::kRc:
      return "RC";
    case transport::QpType::kUc:
      return "UC";
    case transport::QpType::kUd:
      return "UD";
    case transport::QpType::kGsi:
      return "GSI";
  }
  return "?";
}

// A capture into a file made anew. Nothing but a regular file: opening or writing any other kind
// may block the daemon.
Result<std::unique_ptr<dpdk::Capture>> make_capture(const std::string& path,
                                                    const std::string& interface_name) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd.is_open()) return Error{errno, std::strerror(errno)};
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Error{EINVAL, "not a regular file"};
  }
  if (::ftruncate(fd.get(), 0) != 0) return Error{errno, std::strerror(errno)};
  dpdk::CaptureOptions options;
  options.interface_name = interface_name;
  return dpdk::Capture::make(fd.release(), options);
}

}  // namespace

std::string Daemon::serve_line(const ControlServer::Request& request) {
  const auto parsed = json::parse(request.line, nullptr, false);
  if (!parsed.is_object()) return refusal("a request is one JSON object a line").dump();
  try {
    return serve_request(parsed, request.may_change_it).dump();
  } catch (const json::exception& error) {
    return refusal(error.what()).dump();
  }
}

json Daemon::serve_request(const json& request, bool may_change_it) {
  const std::string command = request.value("command", "");
  if (command == "status") return status();
  if (command == "qps") return queue_pairs(request.value("device", ""));
  if ((command == "link" || command == "down" || command == "capture") && !may_change_it) {
    return refusal("only root and the daemon's own user may do this");
  }
  if (command == "link") return set_link(request.value("device", ""), request.value("state", ""));
  if (command == "capture") return capture(request);
  if (command == "config") return {{"ok", true}, {"config", effective_text(config_)}};
  if (command == "down") {
    loop_.after(std::chrono::milliseconds(10), [this] { loop_.stop(); });
    return {{"ok", true}};
  }
  return refusal("unknown command '" + command +
                 "'; known: status, qps, link, capture, config, down");
}

Device* Daemon::find_device(const std::string& name) {
  const auto found = std::ranges::find_if(
      devices_, [&](const auto& device) { return device->config.name == name; });
  return found == devices_.end() ? nullptr : found->get();
}

json Daemon::device_status(Device& device) {
  json gids = json::array();
  json addresses = json::array();
  for (std::size_t i = 0; i < device.gids.size(); ++i) {
    const GidEntry& entry = device.gids[i];
    if (entry.is_empty()) continue;
    gids.push_back({{"index", i},
                    {"gid", gid_text(entry.gid)},
                    {"type", gid_type_text(entry.type)},
                    {"vlan", entry.vlan_id ? json(*entry.vlan_id) : json()},
                    {"netdev", entry.netdev}});
    if (i > 1 && entry.type == GidType::kRoceV2) addresses.push_back(address_text(entry.gid));
  }
  std::uint32_t contexts = 0;
  std::uint32_t channels = 0;
  sessions_->for_each_context([&](VerbsContext& context) {
    if (&context.device != &device) return;
    ++contexts;
    channels += context.channels.count();
  });
  const auto counts = worker_->run([&] { return worker_->engine(device.index).counts(); });
  return {{"name", device.config.name},
          {"link", device.config.link.text},
          {"state", device.is_link_up ? "ACTIVE" : "DOWN"},
          {"mac", mac_text(device.mac)},
          {"netdev", device.netdev ? device.netdev->name() : ""},
          {"mtu", device.max_path_mtu_bytes()},
          {"addresses", addresses},
          {"gids", gids},
          {"objects",
           {{"contexts", contexts},
            {"pds", device.pd_count},
            {"mrs", device.regions.in_use()},
            {"cqs", counts.cqs},
            {"qps", counts.qps},
            {"srqs", counts.srqs},
            {"ahs", device.ah_count},
            {"channels", channels},
            {"inflight_requests", counts.inflight_requests},
            {"responder_resources", counts.responder_resources},
            {"taken_receives", counts.taken_receives}}}};
}

json Daemon::status() {
  json devices = json::array();
  for (const auto& device : devices_) devices.push_back(device_status(*device));
  json clients = json::array();
  sessions_->for_each_context([&](VerbsContext& context) {
    clients.push_back({{"pid", context.identity.pid},
                       {"uid", context.identity.uid},
                       {"device", context.device.config.name}});
  });
  const WorkerBlock w = worker_->run([&] { return counters_->worker(0); });  // it writes them
  const auto uptime =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
  return {{"ok", true},
          {"version", ROCEMU_VERSION},
          {"pid", ::getpid()},
          {"uptime_s", uptime.count()},
          {"runtime_dir", config_.runtime_dir},
          {"devices", devices},
          {"clients", clients},
          {"workers", json::array({{{"turns", w.turns},
                                    {"idle_turns", w.idle_turns},
                                    {"sleeps", w.sleeps},
                                    {"busy_ns", w.busy_ns},
                                    {"max_turn_ns", w.max_turn_ns},
                                    {"system_calls", w.system_calls}}})}};
}

json Daemon::queue_pairs(const std::string& device_name) {
  Device* device = find_device(device_name);
  if (device == nullptr) return refusal("no device '" + device_name + "'");
  const auto counts = worker_->run([&] { return worker_->engine(device->index).counts(); });
  std::vector<engine::QpSnapshot> found(counts.qps);
  found.resize(worker_->run([&] { return worker_->engine(device->index).list_qps(0, found); }));
  json qps = json::array();
  for (const auto& qp : found) {
    const auto owner = device->qp_owners.find(qp.number.value);
    qps.push_back(
        {{"qpn", qp.number.value},
         {"type", type_text(qp.type)},
         {"state", state_text(qp.attr.state)},
         {"dest_qpn", qp.attr.destination_qp.value},
         {"peer", address_text(qp.attr.av.verbs.dgid)},
         {"pid", owner != device->qp_owners.end() ? owner->second.context->identity.pid : 0},
         {"tx_packets", qp.stats.tx_packets},
         {"tx_payload_bytes", qp.stats.tx_payload_bytes},
         {"rx_packets", qp.stats.rx_packets},
         {"rx_payload_bytes", qp.stats.rx_payload_bytes},
         {"retransmitted_packets", qp.stats.retransmitted_packets},
         {"naks_received", qp.stats.naks_received},
         {"naks_sent", qp.stats.naks_sent},
         {"timeouts", qp.stats.timeouts}});
  }
  return {{"ok", true}, {"qps", qps}};
}

json Daemon::set_link(const std::string& device_name, const std::string& state) {
  Device* device = find_device(device_name);
  if (device == nullptr) return refusal("no device '" + device_name + "'");
  if (state != "up" && state != "down") return refusal("a link is set 'up' or 'down'");
  device->is_admin_up = state == "up";
  apply_port_state(*device, device->is_netdev_up);
  return {{"ok", true}};
}

json Daemon::capture(const json& request) {
  const std::string name = request.value("device", "");
  const std::string action = request.value("action", "");
  const Device* device = find_device(name);
  if (device == nullptr) return refusal("no device '" + name + "'");
  if (action == "stop") {
    const auto ended = worker_->run([&] { return worker_->stop_capture(device->index); });
    if (ended == nullptr) return refusal("no capture of " + name + " runs");
    const dpdk::CaptureTotals totals = ended->totals();
    return {{"ok", true},
            {"recorded_frames", totals.recorded_frames},
            {"dropped_frames", totals.dropped_frames}};
  }
  if (action != "start") return refusal("a capture is told to 'start' or to 'stop'");
  if (worker_->run([&] { return worker_->is_capturing(device->index); })) {
    return refusal("a capture of " + name + " runs already");
  }
  const std::string file = request.value("file", "");
  auto made = make_capture(file, name);
  if (!made) return refusal("'" + file + "': " + made.error().text);
  const auto started =
      worker_->run([&] { return worker_->start_capture(device->index, std::move(made.value())); });
  if (!started) return refusal(started.error().text);
  return {{"ok", true}};
}

}  // namespace rocemu::control
