#include "control/daemon.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "control/listener.h"
#include "control/sysfs.h"
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/ethdev_port.h"
#include "dataplane/dpdk/wire_port.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control {
namespace {

namespace fs = std::filesystem;

// IBV_EVENT_*.
constexpr std::uint32_t kPortActive = 9;
constexpr std::uint32_t kPortError = 10;
constexpr std::uint32_t kGidChange = 18;

std::runtime_error failure(const std::string& what) { return std::runtime_error(what); }

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

wire::MacAddress default_mac(std::size_t number) {
  return {0x02,
          0x00,
          0x52,
          0x6f,
          static_cast<std::uint8_t>((number + 1) >> 8),
          static_cast<std::uint8_t>(number + 1)};
}

Prng random_stream() {
  std::random_device entropy;
  return Prng(std::uint64_t{entropy()} << 32 | entropy());
}

}  // namespace

Daemon::Daemon(const Config& config)
    : config_(config), spaces_(config.max_clients), copy_port_(spaces_) {
  raise_descriptor_limit();
  take_runtime_dir();
  std::vector<std::string> names;
  for (const DeviceConfig& device : config_.devices) names.push_back(device.name);
  auto counters = CountersFile::make(path_of(abi::kCountersName), names, 1);
  if (!counters) throw failure(counters.error().text);
  counters_ = std::move(*counters);
  start_dpdk();
  make_devices();
  write_tree();
  counters_->publish();
  worker_->start();
  open_sockets();
}

Daemon::~Daemon() {
  control_server_.reset();
  sessions_.reset();
  worker_->stop();
  std::error_code ignored;
  for (const char* name :
       {abi::kSocketName, abi::kControlName, abi::kPidName, abi::kCountersName}) {
    fs::remove(path_of(name), ignored);
  }
  fs::remove_all(path_of(abi::kSysfsName), ignored);
}

std::string Daemon::path_of(const char* name) const { return config_.runtime_dir + "/" + name; }

void Daemon::take_runtime_dir() {
  std::error_code error;
  const bool is_new = fs::create_directories(config_.runtime_dir, error);
  if (error) {
    throw failure(config_.runtime_dir + ": cannot be made: " + error.message() +
                  "; choose another --runtime-dir");
  }
  if (is_new) ::chmod(config_.runtime_dir.c_str(), 0755);
  const std::string path = path_of("lock");
  lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.is_open()) {
    throw failure(path + ": " + std::strerror(errno) + "; choose another --runtime-dir");
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw failure("another rocemud serves " + config_.runtime_dir +
                  "; stop it with `rocemu down` or choose another --runtime-dir");
  }
  std::ofstream(path_of(abi::kPidName)) << ::getpid() << "\n";
}

std::unique_ptr<dpdk::Port> Daemon::make_port(const DeviceConfig& device, std::size_t number) {
  if (device.link.kind == LinkConfig::Kind::kWire) {
    auto& wire = wires_[device.link.name];
    if (!wire) wire = std::make_unique<fabric::Wire>();
    return std::make_unique<dpdk::WirePort>(wire->attach(device.mac.value_or(default_mac(number))));
  }
  auto port = dpdk::make_ethdev_port(
      {.name = device.link.name, .mac = device.mac, .mtu_bytes = device.mtu_bytes});
  if (!port) throw failure("device " + device.name + ": " + port.error().text + dpdk_complaints_);
  return std::move(*port);
}

void Daemon::start_dpdk() {
  std::vector<std::string> arguments = config_.eal_args;
  std::string names;
  for (const DeviceConfig& device : config_.devices) {
    if (device.link.kind != LinkConfig::Kind::kEthdev) continue;
    names += (names.empty() ? "" : ", ") + device.name;
    if (!device.link.server_socket.empty()) remove_stale_socket(device.link.server_socket);
    arguments.push_back(device.link.is_vdev ? "--vdev" : "-a");
    arguments.push_back(device.link.devargs);
  }
  if (names.empty()) return;
  const auto started = dpdk::start_eal(arguments);
  if (!started) throw failure(names + ": " + started.error().text);
  for (const std::string& note : started->notes) {
    spdlog::warn("{}", note);
    if (note.starts_with("DPDK: ")) dpdk_complaints_ += "; " + note;
  }
}

void Daemon::make_devices() {
  dpdk::WorkerConfig worker;
  worker.max_contexts = config_.max_clients;
  worker.spin_before_sleep = microseconds(config_.spin_us);
  worker.max_poll_interval = microseconds(config_.max_poll_us);
  worker.cpu = config_.worker_cpu;
  worker_ = std::make_unique<dpdk::Worker>(worker, counters_->worker(0));
  for (std::size_t i = 0; i < config_.devices.size(); ++i) {
    auto device = std::make_unique<Device>(config_.devices[i], loop_, *worker_);
    auto port = make_port(device->config, i);
    engine::EngineConfig engine;
    engine.limits.max_qps = kMaxQps;
    engine.limits.max_cqs = kMaxCqs;
    engine.limits.max_gids = kGidTableLength;
    engine.max_mtu_bytes = Device::path_mtu_for(device->config, port->mtu_bytes());
    engine.personality = config_.personality;
    engine.always_icrc =
        !config_.is_wire_trusted || device->config.link.kind != LinkConfig::Kind::kWire;
    device->counters = &counters_->block(i, 0);
    const std::size_t index = worker_->add_device(
        std::move(port), engine, copy_port_, device->regions, *device->counters, random_stream());
    device->attach(index);
    if (!device->config.netdev.empty()) make_netdev(*device);
    devices_.push_back(std::move(device));
  }
  loop_.add(worker_->notification_fd(), EPOLLIN, [this](std::uint32_t) { on_notifications(); });
}

void Daemon::make_netdev(Device& device) {
  const auto made = device.make_netdev();
  if (made) {
    loop_.add(device.netdev->changes_fd(), EPOLLIN,
              [this, &device](std::uint32_t) { on_netdev_change(device); });
    return;
  }
  const std::string text = "device " + device.config.name + ": no netdev '" + device.config.netdev +
                           "': " + made.error().text;
  const int code = made.error().code;
  if (code != EPERM && code != EACCES && code != ENODEV) throw failure(text);
  spdlog::warn(
      "{}; it needs CAP_NET_ADMIN (and CAP_SYS_ADMIN for another namespace); the device "
      "has its configured addresses only",
      text);
}

void Daemon::on_netdev_change(Device& device) {
  device.netdev->drain_changes();
  const auto view = device.netdev->look();
  if (!view) {
    spdlog::warn("{}: {}", device.config.name, view.error().text);
    return;
  }
  if (!view->is_there) spdlog::warn("{}: its netdev was removed", device.config.name);
  apply_port_state(device, view->is_up);
  const auto changed = device.set_addresses(view->addresses);
  if (changed.empty()) return;
  const auto written =
      write_gid_entries(path_of(abi::kSysfsName), device.config.name, device.gids, changed);
  if (!written) spdlog::warn("{}: {}", device.config.name, written.error().text);
  spdlog::info("{}: {} GID entries changed", device.config.name, changed.size());
  push_to_all(device, kGidChange);
}

void Daemon::apply_port_state(Device& device, bool is_netdev_up) {
  device.is_netdev_up = is_netdev_up;
  const bool is_up = device.is_admin_up && is_netdev_up;
  worker_->run([&] { worker_->port(device.index).set_admin_up(is_up); });
}

void Daemon::push_to_all(const Device& device, std::uint32_t event_type) {
  sessions_->for_each_context([&](VerbsContext& context) {
    if (&context.device == &device) context.push_async(1, event_type);
  });
}

void Daemon::write_tree() {
  std::vector<SysfsDevice> tree;
  for (const auto& device : devices_) {
    tree.push_back({device->config.name, node_guid(device->mac), device->mac, device->gids,
                    kGidTableLength, device->is_link_up,
                    device->netdev ? device->netdev->name() : std::string()});
  }
  const auto written = write_sysfs(path_of(abi::kSysfsName), tree);
  if (!written) throw failure(written.error().text);
}

void Daemon::open_sockets() {
  auto server = ControlServer::make(
      loop_, path_of(abi::kControlName),
      [this](const ControlServer::Request& request) { return serve_line(request); });
  if (!server) throw failure(server.error().text);
  control_server_ = std::move(*server);
  std::vector<Device*> devices;
  for (const auto& device : devices_) devices.push_back(device.get());
  auto sessions = Sessions::make(loop_, path_of(abi::kSocketName), spaces_, std::move(devices),
                                 {.max_contexts = config_.max_clients},
                                 [this](const std::string& path) { return read_attribute(path); });
  if (!sessions) throw failure(sessions.error().text);
  sessions_ = std::move(*sessions);
}

void Daemon::watch_signals(int signal_fd) {
  loop_.add(signal_fd, EPOLLIN, [this](std::uint32_t) { loop_.stop(); });
}

void Daemon::run() {
  spdlog::info("serving {} device(s) in {}", devices_.size(), config_.runtime_dir);
  loop_.run();
  spdlog::info("stopping");
}

Result<std::string> Daemon::read_attribute(const std::string& path) {
  const auto counter = parse_counter_path(path);
  if (!counter) return counter.error();
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->config.name != counter->device) continue;
    return std::to_string(counters_->total(i, counter->counter_index)) + "\n";
  }
  return Error{ENOENT, "no such device"};
}

void Daemon::on_notifications() {
  while (auto notification = worker_->next_notification()) {
    std::visit([this](auto& n) { on_notification(n); }, *notification);
  }
}

void Daemon::on_notification(dpdk::DeviceAsyncEvent& event) {
  Device& device = *devices_[event.device];
  const engine::AsyncEvent& what = event.event;
  const auto report = [&what](const auto& owners, std::uint32_t id) {
    const auto owner = owners.find(id);
    // None: the object ended while its event was on the way.
    if (owner == owners.end()) return;
    owner->second.context->on_async_event(what.type, owner->second.handle);
  };
  if (what.type == engine::AsyncEventType::kCqError) {
    report(device.cq_owners, what.cq.value);
  } else if (engine::is_srq_event(what.type)) {
    report(device.srq_owners, what.srq.value);
  } else {
    report(device.qp_owners, what.qp.value);
  }
}

void Daemon::on_notification(dpdk::PuntedFrame& frame) {
  Device& device = *devices_[frame.device];
  const auto learnt = device.on_neighbour_frame(frame.bytes);
  if (learnt) sessions_->on_neighbour(device, *learnt);
}

void Daemon::on_notification(dpdk::LinkChange& change) {
  Device& device = *devices_[change.device];
  device.is_link_up = change.is_up;
  spdlog::info("{}: link {}", device.config.name, change.is_up ? "up" : "down");
  (void)write_link_state(path_of(abi::kSysfsName), device.config.name, change.is_up);
  if (device.netdev) device.netdev->set_carrier(change.is_up);
  push_to_all(device, change.is_up ? kPortActive : kPortError);
}

void Daemon::on_notification(dpdk::ContextFault& fault) {
  spdlog::warn("a client's ring memory failed; its context ends");
  sessions_->end_context(fault.context);
}

}  // namespace rocemu::control
