// Configuration: command line and file, one table of keys that drives parsing, --help, the
// effective print and the error texts. A device is a section of the file; without a file the
// embedded default (two devices on one wire) is used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/engine/engine.h"
#include "dataplane/wire/headers.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

/// Where a device's port is.
struct LinkConfig {
  enum class Kind : std::uint8_t { kWire, kEthdev };
  Kind kind = Kind::kWire;
  std::string text;     ///< As written.
  std::string name;     ///< Wire name, or the DPDK device name.
  std::string devargs;  ///< Ethdev: what follows --vdev or -a.
  bool is_vdev = true;
  std::string server_socket;  ///< The Unix socket that a memif server listens at; else empty.
};

struct DeviceConfig {
  std::string name;
  LinkConfig link;
  std::optional<wire::MacAddress> mac;
  std::vector<wire::Gid> addresses;
  std::map<wire::Gid, wire::MacAddress> neighbours;
  std::uint32_t mtu_bytes = 0;  ///< 0: the link's.
  std::optional<std::uint16_t> vlan_tci;
  std::string netdev;  ///< Name of the TAP interface to make; empty: none.
  std::string netns;   ///< Where: a name below /run/netns or a path; empty: the daemon's own.
  std::map<wire::Gid, std::uint8_t> prefix_lengths;  ///< Of `addresses`, for the netdev.
};

struct Config {
  std::string runtime_dir;
  std::string file;  ///< Empty: the embedded default.
  std::string log_level = "info";
  engine::Personality personality = engine::Personality::kIbta;
  bool is_wire_trusted = false;  ///< icrc = trusted-wire
  int worker_cpu = -1;
  std::uint32_t spin_us = 2;
  std::uint32_t max_poll_us = 1000;
  std::uint32_t max_clients = 1024;
  std::vector<std::string> eal_args;
  int ready_fd = -1;
  std::vector<DeviceConfig> devices;
};

/// What main() does with a command line.
struct ParsedCommandLine {
  std::optional<Config> config;  ///< Absent: print `text` and leave with `exit_code`.
  std::string text;
  int exit_code = 0;
};
ParsedCommandLine parse_command_line(int argc, const char* const* argv);

/// Parses a configuration file's text; errors name `file`, line, key and what is allowed.
Result<void> parse_config_text(const std::string& text, const std::string& file, Config& config);

/// "memif:/run/x.sock,role=server" and the like. EINVAL with what is allowed.
Result<LinkConfig> parse_link(const std::string& text, const std::string& device);

std::vector<DeviceConfig> embedded_default();
/// The configuration in force, as a file would say it.
std::string effective_text(const Config& config);

/// $ROCEMU_RUNTIME_DIR, /run/rocemu for root, $XDG_RUNTIME_DIR/rocemu, /tmp/rocemu-<uid>.
std::string default_runtime_dir();

}  // namespace rocemu::control
