// rocemud, assembled: configuration to worker, devices, files and sockets, and the control thread
// that serves them. Construction does all that may fail (throws std::runtime_error with a sentence
// for the operator); run() serves until a signal or a `down` request.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "control/config.h"
#include "control/control_server.h"
#include "control/counters_file.h"
#include "control/device.h"
#include "control/event_loop.h"
#include "control/session.h"
#include "dataplane/dpdk/worker.h"
#include "dataplane/fabric/wire.h"
#include "dataplane/memory/host/address_spaces.h"
#include "dataplane/memory/host/copy_port.h"

namespace rocemu::control {

class Daemon {
 public:
  explicit Daemon(const Config& config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Ends run() when `signal_fd` (a signalfd) becomes readable.
  void watch_signals(int signal_fd);
  void run();

 private:
  void take_runtime_dir();
  void start_dpdk();
  void make_devices();
  std::unique_ptr<dpdk::Port> make_port(const DeviceConfig& device, std::size_t number);
  void make_netdev(Device& device);
  void on_netdev_change(Device& device);
  void apply_port_state(Device& device, bool is_netdev_up);
  void push_to_all(const Device& device, std::uint32_t event_type);
  void open_sockets();
  Result<std::string> read_attribute(const std::string& path);
  std::string serve_line(const ControlServer::Request& request);
  void on_notifications();
  void on_notification(dpdk::DeviceAsyncEvent& event);
  void on_notification(dpdk::PuntedFrame& frame);
  void on_notification(dpdk::LinkChange& change);
  void on_notification(dpdk::ContextFault& fault);
  void write_tree();
  std::string path_of(const char* name) const;

  nlohmann::json serve_request(const nlohmann::json& request, bool may_change_it);
  nlohmann::json status();
  nlohmann::json device_status(Device& device);
  nlohmann::json queue_pairs(const std::string& device_name);
  nlohmann::json set_link(const std::string& device_name, const std::string& state);
  nlohmann::json capture(const nlohmann::json& request);
  Device* find_device(const std::string& name);

  Config config_;
  std::string dpdk_complaints_;  ///< What DPDK said at its start, each behind "; ".
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  UniqueFd lock_;
  EventLoop loop_;
  std::optional<CountersFile> counters_;
  memory::AddressSpaces spaces_;
  memory::CopyPort copy_port_;
  std::map<std::string, std::unique_ptr<fabric::Wire>> wires_;
  std::unique_ptr<dpdk::Worker> worker_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<ControlServer> control_server_;
};

}  // namespace rocemu::control
