// `rocemu run -- CMD ...`: a command that sees the emulated devices.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "control/cli/common.h"
#include "rocemu/abi/socket.h"

namespace rocemu::cli {

namespace po = boost::program_options;

int run_run(const Arguments& arguments) {
  Arguments own;
  Arguments command;
  bool is_command = false;
  for (const auto& word : arguments) {
    if (!is_command && word == "--") {
      is_command = true;
    } else {
      (is_command ? command : own).push_back(word);
    }
  }
  po::options_description options("Options", 100);
  const auto given = parse_options(own, options, "rocemu run [--runtime-dir DIR] -- CMD [ARG ...]");
  if (!given) return 0;
  if (command.empty()) throw Failure("no command; usage: rocemu run -- CMD [ARG ...]", 2);
  const std::string dir = runtime_dir(*given);
  (void)ask_daemon(dir, {{"command", "status"}});
  std::string preload = find_part("librocemu_shim.so");
  if (const char* others = std::getenv("LD_PRELOAD"); others != nullptr && *others != 0) {
    if (std::strstr(others, preload.c_str()) == nullptr) {
      preload.append(":").append(others);
    } else {
      preload = others;
    }
  }
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::setenv(abi::kRuntimeDirVariable, dir.c_str(), 1);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw Failure(command.front() + ": " + std::strerror(errno), errno == ENOENT ? 127 : 126);
}

}  // namespace rocemu::cli
