// `rocemu stat`: counters, read from the mapped file without asking the daemon, and queue pairs,
// which the daemon is asked for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <iomanip>
#include <iostream>

#include "control/cli/common.h"
#include "control/unique_fd.h"
#include "rocemu/abi/counters.h"
#include "rocemu/abi/socket.h"

namespace rocemu::cli {
namespace {

namespace po = boost::program_options;
using nlohmann::json;

// The counters file, checked before anything in it is believed.
class CountersView {
 public:
  explicit CountersView(const std::string& path) {
    const control::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) throw Failure(path + ": " + std::strerror(errno) + "; is a daemon running?");
    struct stat status {};
    ::fstat(fd.get(), &status);
    bytes_ = static_cast<std::size_t>(status.st_size);
    if (bytes_ < sizeof(CountersHeader)) throw Failure(path + ": not a counters file");
    base_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (base_ == MAP_FAILED) throw Failure(path + ": cannot be mapped");
    const CountersHeader& h = header();
    const std::uint64_t needed =
        h.blocks_offset + std::uint64_t{h.device_count} * h.shard_count * h.block_bytes;
    if (h.magic != kCountersMagic || h.version != kCountersVersion ||
        h.counter_count != kCounterCount || h.block_bytes < sizeof(CounterBlock) ||
        h.device_count > kMaxDevices || h.shard_count > kMaxShards || needed > bytes_) {
      throw Failure(path + ": of another version of rocemu");
    }
  }
  ~CountersView() { ::munmap(base_, bytes_); }
  CountersView(const CountersView&) = delete;
  CountersView& operator=(const CountersView&) = delete;

  const CountersHeader& header() const { return *static_cast<const CountersHeader*>(base_); }
  std::uint64_t total(std::uint32_t device, std::size_t counter) const {
    std::uint64_t sum = 0;
    for (std::uint32_t shard = 0; shard < header().shard_count; ++shard) {
      const auto* block =
          static_cast<const std::byte*>(base_) + header().blocks_offset +
          (std::size_t{device} * header().shard_count + shard) * header().block_bytes;
      sum += reinterpret_cast<const CounterBlock*>(block)->get_at(counter);
    }
    return sum;
  }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

json read_counters(const CountersView& view, std::uint32_t device, bool only_nonzero) {
  json out = json::object();
  for (std::size_t i = 0; i < kCounterCount; ++i) {
    const std::uint64_t value = view.total(device, i);
    if (value != 0 || !only_nonzero) out[std::string(kCounterInfo[i].name)] = value;
  }
  return out;
}

void print(const std::string& device, const json& counters, const json& qps) {
  std::cout << device << "\n";
  for (const auto& [name, value] : counters.items()) {
    std::cout << "  " << std::left << std::setw(36) << name << std::right << std::setw(20) << value
              << "\n";
  }
  for (const auto& qp : qps) {
    std::cout << "  QP " << qp.value("qpn", 0) << " " << qp.value("type", "") << " "
              << qp.value("state", "") << " to " << qp.value("peer", "") << " QP "
              << qp.value("dest_qpn", 0) << ", pid " << qp.value("pid", 0) << "\n    ";
    for (const char* name : {"tx_packets", "tx_payload_bytes", "rx_packets", "rx_payload_bytes",
                             "retransmitted_packets", "naks_received", "naks_sent", "timeouts"}) {
      std::cout << name << " " << qp.value(name, std::uint64_t{0}) << " ";
    }
    std::cout << "\n";
  }
}

}  // namespace

int run_stat(const Arguments& arguments) {
  po::options_description options("Options", 100);
  options.add_options()("device", po::value<std::string>(), "Only this device")(
      "qps", "Queue pairs too")("nonzero", "Only counters that are not 0")("json", "As JSON");
  po::positional_options_description positional;
  positional.add("device", 1);
  const auto given = parse_options(arguments, options,
                                   "rocemu stat [DEVICE] [--qps] [--nonzero] [--json]", positional);
  if (!given) return 0;
  const std::string dir = runtime_dir(*given);
  const std::string wanted = given->contains("device") ? given->at("device").as<std::string>() : "";
  const CountersView view(dir + "/" + abi::kCountersName);
  json all = json::object();
  bool is_found = wanted.empty();
  for (std::uint32_t i = 0; i < view.header().device_count; ++i) {
    const char* text = view.header().device_names[i];
    const std::string name(text, ::strnlen(text, sizeof view.header().device_names[i]));
    if (!wanted.empty() && name != wanted) continue;
    is_found = true;
    const json counters = read_counters(view, i, given->contains("nonzero"));
    json qps = json::array();
    if (given->contains("qps"))
      qps = ask_daemon(dir, {{"command", "qps"}, {"device", name}})["qps"];
    if (given->contains("json")) {
      all[name] = {{"counters", counters}, {"qps", qps}};
    } else {
      print(name, counters, qps);
    }
  }
  if (!is_found) throw Failure("no device '" + wanted + "'");
  if (given->contains("json")) std::cout << all.dump(2) << "\n";
  return 0;
}

}  // namespace rocemu::cli
