// `rocemu up` starts a daemon in the background and waits until it serves; `rocemu down` ends it
// and waits until it is gone.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "control/cli/common.h"
#include "control/unique_fd.h"
#include "rocemu/abi/socket.h"

namespace rocemu::cli {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

constexpr int kReadyTimeoutMs = 30'000;
constexpr auto kDownTimeout = std::chrono::seconds(10);

// The last lines of the log, which say why a daemon did not start.
std::string log_tail(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("rocemud:") || line.find("[error]") != std::string::npos) {
      text += line + "\n";
    }
  }
  return text.empty() ? "see " + path : text.substr(0, text.size() - 1);
}

[[noreturn]] void become_daemon(const std::vector<std::string>& words, int log_fd) {
  ::setsid();
  const int null_fd = ::open("/dev/null", O_RDONLY);
  ::dup2(null_fd, 0);
  ::dup2(log_fd, 1);
  ::dup2(log_fd, 2);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

bool is_ready(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  char byte = 0;
  return ::poll(&waiting, 1, kReadyTimeoutMs) == 1 && ::read(fd, &byte, 1) == 1;
}

}  // namespace

int run_up(const Arguments& arguments) {
  po::options_description options("Options", 100);
  options.add_options()("config,c", po::value<std::string>()->value_name("FILE"),
                        "Configuration file; without one: roce0 and roce1 on a wire inside the "
                        "daemon")(
      "option,o", po::value<std::vector<std::string>>()->composing()->value_name("KEY=VALUE"),
      "Any option of rocemud, e.g. -o log-level=debug; may be repeated");
  const auto given =
      parse_options(arguments, options, "rocemu up [--config FILE] [--runtime-dir DIR]");
  if (!given) return 0;
  const std::string dir = runtime_dir(*given);
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw Failure(dir + ": " + error.message() + "; choose another --runtime-dir");
  const std::string log = dir + "/" + abi::kLogName;
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log_fd < 0) throw Failure(log + ": " + std::strerror(errno));
  int ready[2];
  if (::pipe(ready) != 0) throw Failure("no pipe");
  ::fcntl(ready[0], F_SETFD, FD_CLOEXEC);
  std::vector<std::string> words = {find_part("rocemud"), "--runtime-dir", dir, "--ready-fd",
                                    std::to_string(ready[1])};
  if (given->contains("config")) {
    words.insert(words.end(), {"--config", given->at("config").as<std::string>()});
  }
  if (given->contains("option")) {
    for (const auto& word : given->at("option").as<std::vector<std::string>>()) {
      words.push_back("--" + word);
    }
  }
  const pid_t pid = ::fork();
  if (pid == 0) become_daemon(words, log_fd);
  ::close(ready[1]);
  if (!is_ready(ready[0])) {
    ::kill(pid, SIGTERM);
    ::waitpid(pid, nullptr, 0);
    throw Failure("the daemon did not start: " + log_tail(log));
  }
  const auto status = ask_daemon(dir, {{"command", "status"}});
  std::cout << "rocemud (pid " << pid << ") serves";
  for (const auto& device : status["devices"]) std::cout << " " << device.value("name", "");
  std::cout << " in " << dir << "\n";
  return 0;
}

// The daemon holds its lock to its very end; its other files go earlier.
bool is_directory_free(const std::string& dir) {
  const control::UniqueFd lock(::open((dir + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  return !lock.is_open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

int run_down(const Arguments& arguments) {
  po::options_description options("Options", 100);
  const auto given = parse_options(arguments, options, "rocemu down [--runtime-dir DIR]");
  if (!given) return 0;
  const std::string dir = runtime_dir(*given);
  const auto status = ask_daemon(dir, {{"command", "status"}});
  const pid_t pid = status.value("pid", 0);
  (void)ask_daemon(dir, {{"command", "down"}});
  const auto give_up = std::chrono::steady_clock::now() + kDownTimeout;
  while (::kill(pid, 0) == 0 && !is_directory_free(dir)) {
    if (std::chrono::steady_clock::now() > give_up) throw Failure("the daemon is still there");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}

}  // namespace rocemu::cli
