// `rocemu capture`: what crosses a device's link, into a pcapng file.
#include <filesystem>
#include <iostream>

#include "control/cli/common.h"

namespace rocemu::cli {

int run_capture(const Arguments& arguments) {
  namespace po = boost::program_options;
  po::options_description options("Options", 100);
  options.add_options()("device", po::value<std::string>()->required(), "Device")(
      "action", po::value<std::string>()->required(), "start or stop")(
      "file", po::value<std::string>()->default_value(""),
      "With start: the pcapng file, made anew by the daemon with the daemon's rights");
  po::positional_options_description positional;
  positional.add("device", 1).add("action", 1).add("file", 1);
  const auto given =
      parse_options(arguments, options, "rocemu capture DEVICE start FILE | stop", positional);
  if (!given) return 0;
  const std::string action = given->at("action").as<std::string>();
  std::string file = given->at("file").as<std::string>();
  // The daemon has another working directory.
  if (!file.empty()) file = std::filesystem::absolute(file).string();
  const auto answer =
      ask_daemon(runtime_dir(*given), {{"command", "capture"},
                                       {"device", given->at("device").as<std::string>()},
                                       {"action", action},
                                       {"file", file}});
  if (action == "stop") {
    std::cout << answer.value("recorded_frames", 0ull) << " frames recorded, "
              << answer.value("dropped_frames", 0ull) << " dropped\n";
  }
  return 0;
}

}  // namespace rocemu::cli
