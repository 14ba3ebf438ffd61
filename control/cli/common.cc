#include "control/cli/common.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "control/config.h"
#include "control/unique_fd.h"
#include "rocemu/abi/socket.h"

namespace rocemu::cli {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

control::UniqueFd connect_to(const std::string& dir) {
  const std::string path = dir + "/" + abi::kControlName;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw Failure(path + ": too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  control::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  if (errno == EACCES || errno == EPERM) {
    throw Failure("no right to use the daemon of " + dir + " (" + std::strerror(errno) + ")");
  }
  throw Failure("no daemon serves " + dir + "; start one with `rocemu up`");
}

}  // namespace

std::optional<po::variables_map> parse_options(
    const Arguments& arguments, po::options_description& options, const std::string& usage,
    const po::positional_options_description& positional) {
  options.add_options()("help,h", "This text")(
      "runtime-dir", po::value<std::string>()->value_name("DIR"),
      "The daemon's directory; default $ROCEMU_RUNTIME_DIR, /run/rocemu for root, "
      "$XDG_RUNTIME_DIR/rocemu, /tmp/rocemu-UID");
  po::variables_map given;
  try {
    po::store(po::command_line_parser(arguments).options(options).positional(positional).run(),
              given);
    if (given.contains("help")) {
      std::cout << "usage: " << usage << "\n\n" << options;
      return std::nullopt;
    }
    po::notify(given);
  } catch (const po::error& error) {
    throw Failure(std::string(error.what()) + "\nusage: " + usage, 2);
  }
  return given;
}

std::string runtime_dir(const po::variables_map& given) {
  return given.contains("runtime-dir") ? given["runtime-dir"].as<std::string>()
                                       : control::default_runtime_dir();
}

nlohmann::json ask_daemon(const std::string& dir, const nlohmann::json& request) {
  const control::UniqueFd fd = connect_to(dir);
  const std::string line = request.dump() + "\n";
  if (::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    throw Failure("the daemon does not take requests");
  }
  std::string answer;
  std::array<char, 65536> buffer;
  while (answer.find('\n') == std::string::npos) {
    const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) throw Failure("the daemon did not answer");
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const auto reply = nlohmann::json::parse(answer, nullptr, false);
  if (!reply.is_object()) throw Failure("the daemon's answer is not understood");
  if (!reply.value("ok", false)) throw Failure(reply.value("error", "the daemon refused"));
  return reply;
}

std::string find_part(const std::string& name) {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& place :
       {here / name, here / "verbs_shim" / name, here.parent_path() / "lib" / "rocemu" / name,
        here.parent_path() / "lib" / name}) {
    std::error_code unreadable;
    if (fs::exists(place, unreadable)) return place.string();
    if (unreadable) throw Failure(place.string() + ": " + unreadable.message());
  }
  throw Failure(name + " is not found beside " + here.string() + " nor in its lib folder");
}

}  // namespace rocemu::cli
