#include "control/sysfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "control/unique_fd.h"
#include "rocemu/abi/counters.h"
#include "rocemu/abi/socket.h"

namespace rocemu::control {
namespace {

namespace fs = std::filesystem;

// librxe serves uverbs ABI 2 of rdma_rxe.
constexpr char kProviderAbi[] = "2";
constexpr char kUverbsAbi[] = "6";

// Throws std::system_error.
void write_file(const fs::path& path, std::string_view text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  std::string line(text);
  line += '\n';
  if (!fd.is_open() ||
      ::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::system_error(errno, std::generic_category(), path.string());
  }
}

void make_directory(const fs::path& path) {
  fs::create_directories(path);
  ::chmod(path.c_str(), 0755);
}

std::string guid_text(std::uint64_t guid) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
                static_cast<unsigned>(guid >> 32 & 0xffff),
                static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
  return text;
}

const char* counter_directory(CounterKind kind) {
  switch (kind) {
    case CounterKind::kPort:
      return "counters";
    case CounterKind::kHw:
      return "hw_counters";
    case CounterKind::kInternal:
    case CounterKind::kDrop:
      break;
  }
  return nullptr;
}

// Written apart and renamed: a reader sees one text or the other.
void replace_file(const fs::path& path, std::string_view text) {
  fs::path fresh = path;
  // Above the directories that programs list.
  while (fresh.filename() != "class") fresh = fresh.parent_path();
  fresh = fresh.parent_path() / "fresh";
  write_file(fresh, text);
  fs::rename(fresh, path);
}

void write_states(const fs::path& port, bool is_link_up) {
  replace_file(port / "state", is_link_up ? "4: ACTIVE" : "1: DOWN");
  replace_file(port / "phys_state", is_link_up ? "5: LinkUp" : "3: Disabled");
}

// An unused entry has a type as well: a plain file cannot answer EINVAL as the kernel's does, and
// ibv_query_gid_table takes a missing one for an error.
void write_gid(const fs::path& port, std::size_t index, const GidEntry& entry) {
  const std::string n = std::to_string(index);
  replace_file(port / "gids" / n, gid_text(entry.gid));
  replace_file(port / "gid_attrs/types" / n,
               gid_type_text(entry.is_empty() ? GidType::kRoceV1 : entry.type));
  if (entry.netdev.empty()) {
    fs::remove(port / "gid_attrs/ndevs" / n);
  } else {
    replace_file(port / "gid_attrs/ndevs" / n, entry.netdev);
  }
}

void write_gids(const fs::path& port, const SysfsDevice& device) {
  for (const char* directory : {"gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys"}) {
    make_directory(port / directory);
  }
  write_file(port / "pkeys/0", "0xffff");
  for (std::uint32_t i = 0; i < device.gid_table_length; ++i) {
    write_gid(port, i, i < device.gids.size() ? device.gids[i] : GidEntry{});
  }
}

void write_port(const fs::path& port, const SysfsDevice& device) {
  make_directory(port / "counters");
  make_directory(port / "hw_counters");
  write_states(port, device.is_link_up);
  write_file(port / "link_layer", "Ethernet");
  write_file(port / "rate", "100 Gb/sec (4X EDR)");
  write_file(port / "lid", "0x0");
  write_file(port / "lid_mask_count", "0");
  write_file(port / "sm_lid", "0x0");
  write_file(port / "sm_sl", "0");
  write_file(port / "cap_mask", "0x00010000");
  write_gids(port, device);
  for (const CounterInfo& info : kCounterInfo) {
    const char* directory = counter_directory(info.kind);
    if (directory != nullptr) write_file(port / directory / info.name, "0");
  }
}

std::string read_system(const char* path, const char* fallback) {
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t n = fd.is_open() ? ::read(fd.get(), text, sizeof text) : -1;
  if (n <= 0) return fallback;
  std::string out(text, static_cast<std::size_t>(n));
  out.erase(out.find_last_not_of('\n') + 1);
  return out;
}

void write_device(const fs::path& root, const SysfsDevice& device) {
  const fs::path path = root / "class/infiniband" / device.name;
  make_directory(path / "device");
  write_file(path / "node_type", "1: CA");
  write_file(path / "node_guid", guid_text(device.node_guid));
  write_file(path / "sys_image_guid", guid_text(device.node_guid));
  write_file(path / "node_desc", "rocemu");
  write_file(path / "fw_ver", "");
  write_file(path / "hca_type", "rocemu");
  // libibverbs matches the provider by this alias before it looks at the device's name.
  write_file(path / "device/modalias", "rdma_device:Nrxe_" + device.name);
  write_file(path / "device/vendor", "0xffffff");
  write_file(path / "device/device", "0x0");
  write_file(path / "device/numa_node", "-1");
  // All CPUs: the emulated NIC stands next to none in particular.
  write_file(path / "device/local_cpus", read_system("/sys/devices/system/node/node0/cpumap", "1"));
  write_file(path / "device/local_cpulist", read_system("/sys/devices/system/cpu/online", "0"));
  if (!device.netdev.empty()) {
    const fs::path netdev = path / "device/net" / device.netdev;
    make_directory(netdev);
    write_file(netdev / "address", mac_text(device.mac));
    write_file(netdev / "dev_id", "0x0");
    write_file(netdev / "dev_port", "0");
    write_file(netdev / "type", "1");
    write_file(path / "parent", device.netdev);
  }
  write_port(path / "ports/1", device);
}

void write_verbs(const fs::path& root, const SysfsDevice& device, std::size_t index) {
  const fs::path path = root / "class/infiniband_verbs" / ("uverbs" + std::to_string(index));
  make_directory(path);
  write_file(path / "ibdev", device.name);
  write_file(path / "abi_version", kProviderAbi);
  write_file(path / "dev", std::to_string(abi::kUverbsMajor) + ":" +
                               std::to_string(abi::kUverbsFirstMinor + index));
  fs::create_directory_symlink("../../infiniband/" + device.name + "/device", path / "device");
}

}  // namespace

Result<void> write_sysfs(const std::string& root, const std::vector<SysfsDevice>& devices) {
  try {
    fs::remove_all(root);
    make_directory(fs::path(root) / "class/infiniband");
    make_directory(fs::path(root) / "class/infiniband_verbs");
    write_file(fs::path(root) / "class/infiniband_verbs/abi_version", kUverbsAbi);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      write_device(root, devices[i]);
      write_verbs(root, devices[i], i);
    }
  } catch (const std::system_error& error) {
    return Error{error.code().value(), error.what()};
  }
  return {};
}

Result<void> write_link_state(const std::string& root, const std::string& device, bool is_link_up) {
  try {
    write_states(fs::path(root) / "class/infiniband" / device / "ports/1", is_link_up);
  } catch (const std::system_error& error) {
    return Error{error.code().value(), error.what()};
  }
  return {};
}

Result<void> write_gid_entries(const std::string& root, const std::string& device,
                               const std::vector<GidEntry>& gids,
                               const std::vector<std::size_t>& indices) {
  try {
    for (const std::size_t i : indices) {
      write_gid(fs::path(root) / "class/infiniband" / device / "ports/1", i, gids[i]);
    }
  } catch (const std::system_error& error) {
    return Error{error.code().value(), error.what()};
  }
  return {};
}

Result<CounterPath> parse_counter_path(const std::string& attribute) {
  const Error absent{ENOENT, "no such attribute"};
  std::string_view rest = attribute;
  const auto take = [&rest](std::string_view prefix) {
    const bool matches = rest.starts_with(prefix);
    if (matches) rest.remove_prefix(prefix.size());
    return matches;
  };
  if (!take("class/infiniband/")) return absent;
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos) return absent;
  CounterPath out{std::string(rest.substr(0, slash)), 0};
  rest.remove_prefix(slash);
  if (!take("/ports/1/")) return absent;
  for (const CounterInfo& info : kCounterInfo) {
    const char* directory = counter_directory(info.kind);
    if (directory != nullptr && rest == std::string(directory) + "/" + std::string(info.name)) {
      return out;
    }
    ++out.counter_index;
  }
  return absent;
}

}  // namespace rocemu::control
