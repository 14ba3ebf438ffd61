// Drivers read their arguments as "key=value" between commas.
#include "dataplane/dpdk/devargs.h"

#include <cerrno>
#include <initializer_list>
#include <utility>

namespace rocemu::dpdk {
namespace {

constexpr std::size_t kMaxSocketPath = 107;  // sockaddr_un
constexpr std::size_t kMaxInterface = 15;    // IFNAMSIZ
constexpr std::size_t kMaxPortName = 63;     // RTE_ETH_NAME_MAX_LEN, and DPDK's device names

struct Split {
  std::string head;
  std::string rest;  ///< What follows the separator.
};

Split split_at(std::string_view text, char separator) {
  const auto at = text.find(separator);
  if (at == std::string_view::npos) return {std::string(text), std::string()};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + 1))};
}

/// `key`: "name=", or "name=value" whole.
bool has_argument(std::string_view arguments, std::string_view key) {
  for (std::size_t at = arguments.find(key); at != std::string_view::npos;
       at = arguments.find(key, at + 1)) {
    const std::size_t end = at + key.size();
    const bool is_whole = key.ends_with('=') || end == arguments.size() || arguments[end] == ',';
    if (is_whole && (at == 0 || arguments[at - 1] == ',')) return true;
  }
  return false;
}

/// `head`, what is given, then each default whose key ("name=") is not given.
std::string join(std::string_view head, std::string_view given,
                 std::initializer_list<std::pair<std::string_view, std::string_view>> defaults) {
  std::string out(head);
  if (!given.empty()) out.append(",").append(given);
  for (const auto& [key, value] : defaults) {
    if (!has_argument(given, key)) out.append(",").append(key).append(value);
  }
  return out;
}

Error bad_link(std::string_view link, std::string_view why) {
  return {EINVAL, std::string("link \"").append(link).append("\": ").append(why)};
}

Result<PortArguments> memif(std::string_view link, const Split& words, std::string_view device) {
  const std::string& socket = words.head;
  if (socket.size() > kMaxSocketPath) {
    return bad_link(link, "a socket's path has 107 characters at most");
  }
  const bool is_server = has_argument(words.rest, "role=server");
  if (!is_server && has_argument(words.rest, "role=") && !has_argument(words.rest, "role=client")) {
    return bad_link(link, "the role is server or client");
  }
  PortArguments out;
  out.name = std::string("net_memif_").append(device);
  out.option = "--vdev";
  // A frame of ours in one buffer, 2048 of them a direction.
  out.devargs =
      join(out.name + ",socket=" + socket, words.rest,
           {{"role=", "client"}, {"socket-abstract=", "no"}, {"bsize=", "8192"}, {"rsize=", "11"}});
  if (is_server && !has_argument(words.rest, "socket-abstract=yes")) out.server_socket = socket;
  return out;
}

Result<PortArguments> af_packet(std::string_view link, const Split& words,
                                std::string_view device) {
  if (words.head.size() > kMaxInterface) {
    return bad_link(link, "an interface's name has 15 characters at most");
  }
  PortArguments out;
  out.name = std::string("net_af_packet_").append(device);
  out.option = "--vdev";
  // The driver drops what its ring's frames do not hold, without a word; 4608 bytes hold our
  // largest frame with the kernel's header and fit a frame buffer. Blocks are whole pages and whole
  // frames.
  out.devargs = join(out.name + ",iface=" + words.head, words.rest,
                     {{"blocksz=", "36864"}, {"framesz=", "4608"}, {"framecnt=", "1024"}});
  return out;
}

PortArguments named(const Split& words, const char* option) {
  return {.name = words.head,
          .option = option,
          .devargs = join(words.head, words.rest, {}),
          .server_socket = {}};
}

}  // namespace

Result<PortArguments> make_port_arguments(std::string_view link, std::string_view device) {
  const auto [kind, text] = split_at(link, ':');
  const Split words = split_at(text, ',');
  if (words.head.empty() || link.find_first_of(" \t\n") != std::string_view::npos) {
    return bad_link(link, "a link is KIND:NAME[,ARGS] without spaces");
  }
  Result<PortArguments> out = bad_link(link, "memif, af_packet, vdev and pci are known");
  if (kind == "memif") out = memif(link, words, device);
  if (kind == "af_packet") out = af_packet(link, words, device);
  if (kind == "vdev") out = named(words, "--vdev");
  if (kind == "pci") out = named(words, "-a");
  if (out && out->name.size() > kMaxPortName) {
    return bad_link(link, "DPDK's name of the port would be longer than 63 characters");
  }
  return out;
}

}  // namespace rocemu::dpdk
