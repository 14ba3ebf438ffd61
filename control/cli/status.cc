// `rocemu status` and `rocemu link`: what the daemon is and does, and its links.
#include <iomanip>
#include <iostream>

#include "control/cli/common.h"

namespace rocemu::cli {
namespace {

namespace po = boost::program_options;

void print_device(const nlohmann::json& device) {
  std::cout << "\n"
            << device.value("name", "") << ": " << device.value("state", "") << ", link "
            << device.value("link", "") << ", MAC " << device.value("mac", "") << ", path MTU "
            << device.value("mtu", 0) << " bytes";
  if (const auto netdev = device.value("netdev", ""); !netdev.empty()) {
    std::cout << ", netdev " << netdev;
  }
  std::cout << "\n";
  for (const auto& gid : device["gids"]) {
    std::cout << "  GID " << std::setw(3) << gid.value("index", 0) << "  " << gid.value("gid", "")
              << "  " << gid.value("type", "");
    if (!gid["vlan"].is_null()) std::cout << ", VLAN " << gid["vlan"];
    std::cout << "\n";
  }
  std::cout << "  objects:";
  for (const auto& [name, count] : device["objects"].items())
    std::cout << " " << name << " " << count;
  std::cout << "\n";
}

}  // namespace

int run_status(const Arguments& arguments) {
  po::options_description options("Options", 100);
  options.add_options()("json", "The daemon's answer as JSON");
  const auto given = parse_options(arguments, options, "rocemu status [--json]");
  if (!given) return 0;
  const auto status = ask_daemon(runtime_dir(*given), {{"command", "status"}});
  if (given->contains("json")) {
    std::cout << status.dump(2) << "\n";
    return 0;
  }
  std::cout << "rocemud " << status.value("version", "") << ", pid " << status.value("pid", 0)
            << ", up " << status.value("uptime_s", 0) << " s, in "
            << status.value("runtime_dir", "") << "\n";
  for (const auto& device : status["devices"]) print_device(device);
  for (const auto& client : status["clients"]) {
    std::cout << "client pid " << client.value("pid", 0) << " uid " << client.value("uid", 0)
              << " on " << client.value("device", "") << "\n";
  }
  return 0;
}

int run_link(const Arguments& arguments) {
  po::options_description options("Options", 100);
  options.add_options()("device", po::value<std::string>()->required(), "Device")(
      "state", po::value<std::string>()->required(), "up or down");
  po::positional_options_description positional;
  positional.add("device", 1).add("state", 1);
  const auto given = parse_options(arguments, options, "rocemu link DEVICE up|down", positional);
  if (!given) return 0;
  (void)ask_daemon(runtime_dir(*given), {{"command", "link"},
                                         {"device", given->at("device").as<std::string>()},
                                         {"state", given->at("state").as<std::string>()}});
  return 0;
}

}  // namespace rocemu::cli
