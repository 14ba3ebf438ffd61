// The data-integrity program: two processes, a queue pair mesh between them, rounds of random
// operations in both directions at once. After each round each side compares its whole buffer,
// guards included, with what it must be.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/program_options.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "tests/integration/integrity/endpoint.h"

namespace {

using namespace rocemu::integrity;
namespace po = boost::program_options;

constexpr std::uint64_t kRoundsPerConnection = 20;

class Link {
 public:
  explicit Link(int fd) : fd_(fd) {
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  ~Link() { ::close(fd_); }
  template <typename T>
  T exchange(const T& mine) {
    T theirs;
    if (::send(fd_, &mine, sizeof mine, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof mine) ||
        ::recv(fd_, &theirs, sizeof theirs, MSG_WAITALL) != static_cast<ssize_t>(sizeof theirs)) {
      throw std::runtime_error("the peer process is gone");
    }
    return theirs;
  }
  /// Both sides go on when both are here; `go_on` is the first side's word.
  bool barrier(bool go_on = true) { return exchange<std::uint8_t>(go_on ? 1 : 0) != 0 && go_on; }

 private:
  int fd_;
};

sockaddr_in tcp_address(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("not an IPv4 address: " + host);
  }
  return address;
}

int listen_for_one(sockaddr_in address) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    throw std::runtime_error("cannot listen");
  }
  const int fd = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return fd;
}

int connect_to(sockaddr_in address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("cannot connect");
  }
  return fd;
}

int run(const po::variables_map& given) {
  const bool is_server = given.contains("listen");
  const int side = is_server ? 0 : 1;
  const auto server = tcp_address(given["host"].as<std::string>(),
                                  given[is_server ? "listen" : "connect"].as<std::uint16_t>());
  const auto qps = given["qps"].as<std::uint32_t>();
  Endpoint endpoint(given["device"].as<std::string>(), given["gid-index"].as<int>(), side);
  Link link(is_server ? listen_for_one(server) : connect_to(server));
  // The server's seed is both sides'.
  const std::uint64_t theirs = link.exchange(given["seed"].as<std::uint64_t>());
  const std::uint64_t seed = is_server ? given["seed"].as<std::uint64_t>() : theirs;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const Mix mix{qps, 64, !given.contains("no-reads")};
  rocemu::Prng draw(seed);
  rocemu::Prng own(seed + 1 + static_cast<std::uint64_t>(side));
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(given["seconds"].as<int>());
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;
  for (bool goes_on = true; goes_on; ++number) {
    if (number % kRoundsPerConnection == 0) {
      endpoint.drop_qps();
      link.barrier();
      endpoint.make_qps(qps, own);
      const auto mtu = static_cast<ibv_mtu>(IBV_MTU_256 + draw.below(5));
      endpoint.connect(link.exchange(endpoint.info()), mtu,
                       static_cast<std::uint8_t>(given["ack-timeout"].as<int>()));
    }
    const Round round = draw_round(draw, number, mix);
    endpoint.fill(round.before(side));
    endpoint.post_receives(round);
    link.barrier();
    endpoint.post_requests(round);
    endpoint.collect(round);
    link.barrier();
    const std::int64_t difference = endpoint.find_difference(round.after(side));
    if (difference >= 0) {
      std::printf("MISMATCH at offset %lld in round %llu, seed %llu\n",
                  static_cast<long long>(difference), static_cast<unsigned long long>(number),
                  static_cast<unsigned long long>(seed));
      return 1;
    }
    for (const Operation& op : round.operations) bytes += op.size;
    operations += round.operations.size();
    const bool has_time = std::chrono::steady_clock::now() < end;
    const bool peer_goes_on = link.exchange<std::uint8_t>(has_time ? 1 : 0) != 0;
    goes_on = is_server ? has_time : peer_goes_on;
  }
  std::printf("rounds %llu, operations %llu, bytes %llu, completions %llu, mismatches 0\n",
              static_cast<unsigned long long>(number), static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(endpoint.completions()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("Options");
  options.add_options()("help,h", "This text")("device", po::value<std::string>()->required(),
                                               "Verbs device")(
      "gid-index", po::value<int>()->default_value(3), "GID index")(
      "listen", po::value<std::uint16_t>(), "TCP port of the server")(
      "connect", po::value<std::uint16_t>(), "TCP port to connect to")(
      "host", po::value<std::string>()->default_value("127.0.0.1"), "The server's IPv4 address")(
      "seconds", po::value<int>()->default_value(10), "How long")(
      "qps", po::value<std::uint32_t>()->default_value(4), "Queue pairs, 1 ... 64")(
      "no-reads", "Neither READs nor atomics: a peer cannot do them under loss")(
      "ack-timeout", po::value<int>()->default_value(14),
      "Local ACK timeout, 0 ... 31 (4.096 us * 2^N)")(
      "seed", po::value<std::uint64_t>()->default_value(1), "The server's is used");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    if (given.contains("help") || given.contains("listen") == given.contains("connect")) {
      std::cout << options;
      return given.contains("help") ? 0 : 2;
    }
    po::notify(given);
    return run(given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "integrity: %s\n", error.what());
    return 1;
  }
}
