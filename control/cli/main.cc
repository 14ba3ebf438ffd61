// rocemu: the one command-line tool.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "control/cli/command.h"
#include "control/cli/common.h"

namespace {

using rocemu::cli::Arguments;

struct Command {
  const char* name;
  const char* sentence;
  int (*run)(const Arguments&);
};

constexpr Command kCommands[] = {
    {"up", "Start a daemon in the background", rocemu::cli::run_up},
    {"down", "End the daemon", rocemu::cli::run_down},
    {"run", "Run a command that sees the emulated devices: rocemu run -- CMD",
     rocemu::cli::run_run},
    {"status", "Devices, addresses, objects, clients", rocemu::cli::run_status},
    {"stat", "Counters by device and queue pair", rocemu::cli::run_stat},
    {"link", "Set a device's link up or down", rocemu::cli::run_link},
    {"capture", "Record a device's frames: rocemu capture DEVICE start FILE, then stop",
     rocemu::cli::run_capture},
};

void print_help() {
  std::cout << "usage: rocemu COMMAND [OPTION ...]\n\n";
  for (const Command& command : kCommands) {
    std::printf("  %-8s %s\n", command.name, command.sentence);
  }
  std::cout
      << "\n`rocemu COMMAND --help` explains a command; `rocemud --help` the configuration.\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return argc > 1 ? 0 : 2;
  }
  if (name == "--version") {
    std::cout << "rocemu " ROCEMU_VERSION "\n";
    return 0;
  }
  const Arguments arguments(argv + 2, argv + argc);
  try {
    for (const Command& command : kCommands) {
      if (name == command.name) return command.run(arguments);
    }
    std::cerr << "rocemu: unknown command '" << name << "'; see rocemu --help\n";
    return 2;
  } catch (const rocemu::cli::Failure& failure) {
    std::cerr << "rocemu: " << failure.what() << "\n";
    return failure.exit_code;
  } catch (const std::exception& error) {
    std::cerr << "rocemu: " << error.what() << "\n";
    return 1;
  }
}
