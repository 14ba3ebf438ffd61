// rocemud: command line, log, signals; the rest is Daemon.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "control/config.h"
#include "control/daemon.h"

namespace {

using rocemu::control::Config;

int block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void announce_ready(int fd) {
  if (fd < 0) return;
  const char byte = 1;
  if (::write(fd, &byte, 1) != 1) spdlog::warn("nobody listens at --ready-fd");
  ::close(fd);
}

int serve(const Config& config) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("rocemud"));
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  const int signals = block_signals();
  rocemu::control::Daemon daemon(config);
  daemon.watch_signals(signals);
  spdlog::info("effective configuration:\n{}", rocemu::control::effective_text(config));
  announce_ready(config.ready_fd);
  daemon.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = rocemu::control::parse_command_line(argc, argv);
  if (!parsed.config) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  try {
    return serve(*parsed.config);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rocemud: %s\n", error.what());
    return 1;
  }
}
