#include "control/config.h"

#include <unistd.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "control/addresses.h"
#include "dataplane/dpdk/devargs.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control {
namespace {

namespace po = boost::program_options;

std::string trim(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    part = trim(part);
    if (!part.empty()) out.push_back(part);
  }
  return out;
}

Error bad_value(const std::string& value, const std::string& allowed) {
  return {EINVAL, "'" + value + "' is not allowed here; allowed: " + allowed};
}

Result<std::int64_t> parse_number(const std::string& value, std::int64_t low, std::int64_t high) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc{} || end != value.data() + value.size() || n < low || n > high) {
    return bad_value(value, std::to_string(low) + " ... " + std::to_string(high));
  }
  return n;
}

template <typename Target>
Result<void> set_number(const std::string& value, std::int64_t low, std::int64_t high,
                        Target& target) {
  const auto n = parse_number(value, low, high);
  if (!n) return n.error();
  target = static_cast<Target>(n.value());
  return {};
}

/// A key of the file; global ones are options of the command line too.
template <typename Target>
struct Key {
  const char* name;
  const char* allowed;   ///< Unit and range, or the words.
  const char* fallback;  ///< The default.
  const char* sentence;
  std::function<Result<void>(Target&, const std::string&)> set;
};

const std::vector<Key<Config>>& global_keys() {
  static const std::vector<Key<Config>> keys = {
      {"personality", "ibta | rxe", "ibta",
       "Whose departures from the specification are sent; those of all are accepted",
       [](Config& c, const std::string& v) -> Result<void> {
         if (v != "ibta" && v != "rxe") return bad_value(v, "ibta, rxe");
         c.personality = v == "rxe" ? engine::Personality::kRxe : engine::Personality::kIbta;
         return {};
       }},
      {"icrc", "always | trusted-wire", "always",
       "Invariant CRC on every frame, or left out and not looked at on wires inside the daemon",
       [](Config& c, const std::string& v) -> Result<void> {
         if (v != "always" && v != "trusted-wire") return bad_value(v, "always, trusted-wire");
         c.is_wire_trusted = v == "trusted-wire";
         return {};
       }},
      {"log-level", "trace | debug | info | warn | error", "info", "What goes to the log",
       [](Config& c, const std::string& v) -> Result<void> {
         static const std::vector<std::string> levels = {"trace", "debug", "info", "warn", "error"};
         if (std::ranges::find(levels, v) == levels.end()) {
           return bad_value(v, "trace, debug, info, warn, error");
         }
         c.log_level = v;
         return {};
       }},
      {"worker-cpu", "CPU number, -1 ... 1023", "-1", "CPU that the worker is pinned to; -1: none",
       [](Config& c, const std::string& v) { return set_number(v, -1, 1023, c.worker_cpu); }},
      {"spin-us", "microseconds, 0 ... 1000000", "2",
       "How long an idle worker looks on before it sleeps",
       [](Config& c, const std::string& v) { return set_number(v, 0, 1'000'000, c.spin_us); }},
      {"max-poll-us", "microseconds, 10 ... 1000000", "1000",
       "Longest sleep between looks at a port without interrupts",
       [](Config& c, const std::string& v) { return set_number(v, 10, 1'000'000, c.max_poll_us); }},
      {"max-clients", "contexts, 1 ... 4096", "1024", "Device contexts that may be open at once",
       [](Config& c, const std::string& v) { return set_number(v, 1, 4096, c.max_clients); }},
      {"eal", "DPDK EAL arguments", "",
       "Passed to the EAL, which starts when a device needs a port",
       [](Config& c, const std::string& v) -> Result<void> {
         for (auto& arg : split(v, ' ')) c.eal_args.push_back(std::move(arg));
         return {};
       }},
  };
  return keys;
}

Result<void> set_addresses(DeviceConfig& d, const std::string& v) {
  for (const std::string& part : split(v, ',')) {
    const auto gid = parse_address(part);
    const auto prefix_length = parse_prefix_length(part);
    if (!gid || !prefix_length) {
      return bad_value(part, "IPv4 or IPv6 addresses, separated by commas");
    }
    d.addresses.push_back(gid.value());
    d.prefix_lengths[gid.value()] = prefix_length.value();
  }
  return {};
}

Result<void> set_netdev(DeviceConfig& d, const std::string& v) {
  const bool is_name = !v.empty() && v.size() < 16 && v != "." && v != ".." &&
                       v.find_first_of("/:% \t") == std::string::npos;
  if (!is_name) return bad_value(v, "an interface's name, at most 15 characters");
  d.netdev = v;
  return {};
}

Result<void> set_neighbour(DeviceConfig& d, const std::string& v) {
  const auto parts = split(v, ' ');
  if (parts.size() != 2) return bad_value(v, "IP MAC");
  const auto gid = parse_address(parts[0]);
  const auto mac = parse_mac(parts[1]);
  if (!gid || !mac) return bad_value(v, "IP MAC");
  d.neighbours[gid.value()] = mac.value();
  return {};
}

const std::vector<Key<DeviceConfig>>& device_keys() {
  static const std::vector<Key<DeviceConfig>> keys = {
      {"link",
       "wire:NAME | memif:SOCKET,role=server|client | af_packet:INTERFACE | vdev:NAME,ARGS | "
       "pci:ADDRESS",
       "wire:wire0", "What the device's port is connected to",
       [](DeviceConfig& d, const std::string& v) -> Result<void> {
         auto link = parse_link(v, d.name);
         if (!link) return link.error();
         d.link = std::move(link.value());
         return {};
       }},
      {"ip", "IPv4 or IPv6 addresses, separated by commas", "none",
       "Addresses of the device; they make its GID table, or are given to its netdev, whose "
       "addresses then make it (ADDRESS/PREFIX; /24 and /64 when not said)",
       set_addresses},
      {"mac", "six hexadecimal bytes, 02:00:52:6f:00:01", "the port's, or from the device's number",
       "MAC address",
       [](DeviceConfig& d, const std::string& v) -> Result<void> {
         const auto mac = parse_mac(v);
         if (!mac) return bad_value(v, "six hexadecimal bytes, not a group address");
         d.mac = mac.value();
         return {};
       }},
      {"mtu", "bytes, 1280 ... 9000", "the link's", "Largest IP packet that the device sends",
       [](DeviceConfig& d, const std::string& v) {
         return set_number(v, 1280, 9000, d.mtu_bytes);
       }},
      {"vlan", "VLAN id, 1 ... 4094", "none", "802.1Q tag of the device's frames",
       [](DeviceConfig& d, const std::string& v) -> Result<void> {
         const auto n = parse_number(v, 1, 4094);
         if (!n) return n.error();
         d.vlan_tci = static_cast<std::uint16_t>(n.value());
         return {};
       }},
      {"neighbour", "IP MAC", "none", "A static neighbour; may be repeated", set_neighbour},
      {"netdev", "interface name, at most 15 characters", "none",
       "A TAP interface for all that is not RoCE; the GID table then follows its addresses. Needs "
       "CAP_NET_ADMIN; without it the device has none and `ip` is what it has",
       set_netdev},
      {"netns", "NAME of `ip netns`, or a path", "the daemon's own",
       "Network namespace of the netdev",
       [](DeviceConfig& d, const std::string& v) -> Result<void> {
         if (v.empty()) return bad_value(v, "NAME of `ip netns`, or a path");
         d.netns = v;
         return {};
       }},
  };
  return keys;
}

template <typename Target>
std::string names_of(const std::vector<Key<Target>>& keys) {
  std::string out;
  for (const auto& key : keys) out += (out.empty() ? "" : ", ") + std::string(key.name);
  return out;
}

template <typename Target>
Result<void> apply(const std::vector<Key<Target>>& keys, Target& target, const std::string& name,
                   const std::string& value) {
  const auto key = std::ranges::find_if(keys, [&](const auto& k) { return name == k.name; });
  if (key == keys.end()) {
    return Error{EINVAL, "unknown key '" + name + "'; allowed: " + names_of(keys)};
  }
  auto done = key->set(target, value);
  if (!done) {
    return Error{EINVAL, "key '" + name + "': " + done.error().text + " (" + key->allowed + ")"};
  }
  return {};
}

bool is_device_name(const std::string& name) {
  return !name.empty() && name.size() < 32 && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

std::string describe_keys() {
  std::ostringstream out;
  out << "Keys of a device's section [NAME] in the configuration file:\n";
  for (const auto& key : device_keys()) {
    out << "  " << key.name << " = (" << key.allowed << "; default " << key.fallback << ")\n      "
        << key.sentence << "\n";
  }
  return out.str();
}

po::options_description make_options() {
  po::options_description options("Options", 100);
  options.add_options()("help,h", "This text")("version", "The version")(
      "config,c", po::value<std::string>()->value_name("FILE"),
      "Configuration file; without one: roce0 and roce1 on a wire inside the daemon")(
      "runtime-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of sockets, counters and the emulated sysfs; default $ROCEMU_RUNTIME_DIR, "
      "/run/rocemu for root, $XDG_RUNTIME_DIR/rocemu, /tmp/rocemu-UID")(
      "ready-fd", po::value<int>()->value_name("FD"),
      "A byte is written there when the daemon serves");
  for (const auto& key : global_keys()) {
    const std::string text = std::string(key.sentence) + " (" + key.allowed + "; default " +
                             (*key.fallback != 0 ? key.fallback : "none") + ")";
    options.add_options()(key.name, po::value<std::string>(), text.c_str());
  }
  return options;
}

// Keys that contradict each other.
std::optional<std::string> contradiction(const std::vector<DeviceConfig>& devices) {
  for (const DeviceConfig& d : devices) {
    const std::string name = "device '" + d.name + "': ";
    if (d.netdev.empty() && !d.netns.empty()) return name + "netns is for a netdev; name one";
    if (!d.netdev.empty() && d.vlan_tci) {
      return name + "vlan is for a device without netdev; make a VLAN interface on the netdev";
    }
  }
  return std::nullopt;
}

// Two ends of one wire with one address would take each other's frames for their own.
std::optional<std::string> shared_address(const std::vector<DeviceConfig>& devices) {
  for (auto a = devices.begin(); a != devices.end(); ++a) {
    for (auto b = a + 1; b != devices.end(); ++b) {
      if (a->link.kind != LinkConfig::Kind::kWire || a->link.text != b->link.text) continue;
      for (const wire::Gid& address : a->addresses) {
        if (std::ranges::find(b->addresses, address) == b->addresses.end()) continue;
        return "devices '" + a->name + "' and '" + b->name + "' on " + a->link.text +
               " both have the address " + address_text(address);
      }
    }
  }
  return std::nullopt;
}

Result<void> read_file(Config& config) {
  std::ifstream in(config.file);
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(config.file, ignored)) {
    return Error{ENOENT, config.file + ": cannot be read"};
  }
  std::stringstream text;
  text << in.rdbuf();
  return parse_config_text(text.str(), config.file, config);
}

Result<void> build(const po::variables_map& given, Config& config) {
  config.runtime_dir = given.contains("runtime-dir") ? given["runtime-dir"].as<std::string>()
                                                     : default_runtime_dir();
  if (given.contains("ready-fd")) config.ready_fd = given["ready-fd"].as<int>();
  if (given.contains("config")) {
    config.file = given["config"].as<std::string>();
    if (auto done = read_file(config); !done) return done;
  }
  for (const auto& key : global_keys()) {
    if (!given.contains(key.name)) continue;
    auto done = apply(global_keys(), config, key.name, given[key.name].as<std::string>());
    if (!done) return Error{EINVAL, "command line: " + done.error().text};
  }
  if (config.file.empty()) config.devices = embedded_default();
  return {};
}

}  // namespace

Result<LinkConfig> parse_link(const std::string& text, const std::string& device) {
  const std::string allowed =
      "wire:NAME, memif:SOCKET,role=server|client, af_packet:INTERFACE, vdev:NAME,ARGS, "
      "pci:ADDRESS";
  const auto colon = text.find(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return bad_value(text, allowed);
  LinkConfig link;
  link.text = text;
  if (text.starts_with("wire:")) {
    link.kind = LinkConfig::Kind::kWire;
    link.name = text.substr(colon + 1);
    return link;
  }
  auto port = dpdk::make_port_arguments(text, device);
  if (!port) return bad_value(text, allowed + "; " + port.error().text);
  link.kind = LinkConfig::Kind::kEthdev;
  link.name = port->name;
  link.devargs = port->devargs;
  link.is_vdev = port->option == "--vdev";
  link.server_socket = port->server_socket;
  return link;
}

std::vector<DeviceConfig> embedded_default() {
  std::vector<DeviceConfig> devices;
  for (std::uint8_t i = 0; i < 2; ++i) {
    DeviceConfig d;
    d.name = "roce" + std::to_string(i);
    d.link = parse_link("wire:wire0", d.name).value();
    const std::string host = std::to_string(i + 1);
    d.addresses = {parse_address("10.100.0." + host).value(),
                   parse_address("fd00:100::" + host).value()};
    devices.push_back(std::move(d));
  }
  return devices;
}

Result<void> parse_config_text(const std::string& text, const std::string& file, Config& config) {
  std::istringstream in(text);
  DeviceConfig* device = nullptr;
  int number = 0;
  const auto fail = [&](const std::string& what) {
    return Error{EINVAL, file + ":" + std::to_string(number) + ": " + what};
  };
  config.devices.reserve(kMaxDevices);
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line.front() == '[') {
      const std::string name = line.back() == ']' ? trim(line.substr(1, line.size() - 2)) : "";
      if (!is_device_name(name)) return fail("a section is [NAME], letters, digits, _ and -");
      if (std::ranges::any_of(config.devices, [&](const auto& d) { return d.name == name; })) {
        return fail("device '" + name + "' is there twice");
      }
      if (config.devices.size() == kMaxDevices) return fail("at most 64 devices");
      device = &config.devices.emplace_back();
      device->name = name;
      device->link = parse_link("wire:wire0", name).value();
      continue;
    }
    const auto equals = line.find('=');
    if (equals == std::string::npos) return fail("'" + line + "': a line is KEY = VALUE or [NAME]");
    const std::string key = trim(line.substr(0, equals));
    const std::string value = trim(line.substr(equals + 1));
    const auto done = device != nullptr ? apply(device_keys(), *device, key, value)
                                        : apply(global_keys(), config, key, value);
    if (!done) return fail(done.error().text);
  }
  if (config.devices.empty()) return fail("no device: add a section such as [roce0]");
  if (const auto twice = shared_address(config.devices)) {
    return Error{EINVAL, file + ": " + *twice};
  }
  if (const auto what = contradiction(config.devices)) return Error{EINVAL, file + ": " + *what};
  return {};
}

std::string default_runtime_dir() {
  if (const char* dir = std::getenv(abi::kRuntimeDirVariable); dir != nullptr && *dir != 0) {
    return dir;
  }
  if (::geteuid() == 0) return "/run/rocemu";
  if (const char* dir = std::getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != 0) {
    return std::string(dir) + "/rocemu";
  }
  return "/tmp/rocemu-" + std::to_string(::geteuid());
}

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  const po::options_description options = make_options();
  Config config;
  try {
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), given);
    po::notify(given);
    if (given.contains("help")) {
      std::ostringstream out;
      out << "rocemud: the rocemu daemon, a software RoCE v2 NIC\n\n"
          << options << "\n"
          << describe_keys();
      return {std::nullopt, out.str(), 0};
    }
    if (given.contains("version")) return {std::nullopt, "rocemud " ROCEMU_VERSION "\n", 0};
    if (auto done = build(given, config); !done) {
      return {std::nullopt, "rocemud: " + done.error().text + "\n", 2};
    }
  } catch (const po::error& error) {
    return {std::nullopt, std::string("rocemud: ") + error.what() + "; see --help\n", 2};
  }
  return {std::move(config), {}, 0};
}

std::string effective_text(const Config& config) {
  std::ostringstream out;
  out << "personality = " << (config.personality == engine::Personality::kRxe ? "rxe" : "ibta")
      << "\nicrc = " << (config.is_wire_trusted ? "trusted-wire" : "always")
      << "\nlog-level = " << config.log_level << "\nworker-cpu = " << config.worker_cpu
      << "\nspin-us = " << config.spin_us << "\nmax-poll-us = " << config.max_poll_us
      << "\nmax-clients = " << config.max_clients << "\n";
  for (const DeviceConfig& d : config.devices) {
    out << "[" << d.name << "]\nlink = " << d.link.text << "\n";
    for (const auto& gid : d.addresses) {
      out << "ip = " << address_text(gid);
      if (!d.netdev.empty()) out << "/" << int{d.prefix_lengths.at(gid)};
      out << "\n";
    }
    if (d.mac) out << "mac = " << mac_text(*d.mac) << "\n";
    if (d.mtu_bytes != 0) out << "mtu = " << d.mtu_bytes << "\n";
    if (d.vlan_tci) out << "vlan = " << *d.vlan_tci << "\n";
    if (!d.netdev.empty()) out << "netdev = " << d.netdev << "\n";
    if (!d.netns.empty()) out << "netns = " << d.netns << "\n";
    for (const auto& [gid, mac] : d.neighbours) {
      out << "neighbour = " << address_text(gid) << " " << mac_text(mac) << "\n";
    }
  }
  return out.str();
}

}  // namespace rocemu::control
