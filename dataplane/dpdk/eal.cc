// What EAL is told, and what it says.
#include "dataplane/dpdk/eal.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

namespace rocemu::dpdk {
namespace {

constexpr std::size_t kMegabytesAPort = 64;  // frame buffers, and what drivers take
constexpr std::size_t kMegabytesBesides = 64;

bool g_is_running = false;

bool is_given(const std::vector<std::string>& arguments, const std::string& name) {
  return std::ranges::any_of(arguments, [&](const std::string& a) { return a.starts_with(name); });
}

std::size_t needed_megabytes(const std::vector<std::string>& arguments) {
  const auto ports = std::ranges::count_if(arguments, [](const std::string& a) {
    return a.starts_with("--vdev") || a.starts_with("-a") || a.starts_with("--allow");
  });
  return kMegabytesBesides + kMegabytesAPort * static_cast<std::size_t>(ports);
}

bool has_free_huge_pages(std::size_t megabytes) {
  std::ifstream in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  std::size_t free_pages = 0;
  return (in >> free_pages) && free_pages * 2 >= megabytes;
}

// EAL runs its main thread on a core that this process may use.
std::string own_lcore(const cpu_set_t& affinity) {
  int cpu = 0;
  while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(static_cast<unsigned>(cpu), &affinity)) ++cpu;
  return "0@" + std::to_string(cpu);
}

// What EAL and the drivers write to their log while one of these lives.
class LogKeeper {
 public:
  LogKeeper() : stream_(::open_memstream(&text_, &size_)) { ::rte_openlog_stream(stream_); }
  ~LogKeeper() {
    ::rte_openlog_stream(nullptr);
    ::fclose(stream_);
    ::free(text_);
  }
  LogKeeper(const LogKeeper&) = delete;
  LogKeeper& operator=(const LogKeeper&) = delete;

  std::vector<std::string> lines() {
    ::fflush(stream_);
    std::istringstream in(std::string(text_, size_));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) {
      if (!line.empty()) out.push_back("DPDK: " + line);
    }
    return out;
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  FILE* stream_;
};

std::vector<std::string> command_line(const std::vector<std::string>& arguments,
                                      const cpu_set_t& affinity, std::vector<std::string>& notes) {
  std::vector<std::string> words = {"rocemud", "--no-telemetry", "--log-level", "*:error"};
  if (!is_given(arguments, "--lcores") && !is_given(arguments, "-l") &&
      !is_given(arguments, "-c")) {
    // One, for the calling thread; workers are ours and register.
    words.insert(words.end(), {"--lcores", own_lcore(affinity)});
  }
  const std::size_t megabytes = needed_megabytes(arguments);
  if (!is_given(arguments, "--no-huge") && ::geteuid() == 0 && has_free_huge_pages(megabytes)) {
    words.push_back("--in-memory");
  } else {
    // Without huge pages EAL knows one memory model only, which --in-memory excludes; this leaves
    // no files behind either.
    if (!is_given(arguments, "--no-huge")) words.push_back("--no-huge");
    words.push_back("--no-shconf");
    if (!is_given(arguments, "-m") && !is_given(arguments, "--socket-mem")) {
      words.insert(words.end(), {"-m", std::to_string(megabytes)});
    }
    notes.push_back("no free huge pages: DPDK uses ordinary memory, which is slower");
  }
  if (!is_given(arguments, "-a") && !is_given(arguments, "--allow")) words.push_back("--no-pci");
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

Result<EalStart> start_eal(const std::vector<std::string>& arguments) {
  if (g_is_running) return Error{EALREADY, "the DPDK environment runs already"};
  // EAL pins its caller to a core of its choice.
  cpu_set_t affinity;
  ::pthread_getaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  EalStart out;
  std::vector<std::string> words = command_line(arguments, affinity, out.notes);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  LogKeeper log;
  const int parsed = ::rte_eal_init(static_cast<int>(argv.size()), argv.data());
  const int error = rte_errno;
  ::pthread_setaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  const auto complaints = log.lines();
  if (parsed < 0) {
    std::string text = "the DPDK environment does not start";
    for (const std::string& line : complaints) text += "; " + line;
    if (complaints.empty()) text += std::string(": ") + ::rte_strerror(error);
    return Error{error > 0 ? error : ENODEV, text};
  }
  g_is_running = true;
  out.notes.insert(out.notes.end(), complaints.begin(), complaints.end());
  return out;
}

bool is_eal_running() { return g_is_running; }

void register_thread() {
  if (g_is_running && ::rte_lcore_id() == LCORE_ID_ANY) (void)::rte_thread_register();
}

}  // namespace rocemu::dpdk
