#include "dataplane/dpdk/eal.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace rocemu::dpdk {
namespace {

bool g_is_running = false;

bool has_free_huge_pages() {
  std::ifstream in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  long free_pages = 0;
  return (in >> free_pages) && free_pages >= 128;
}

bool is_given(const std::vector<std::string>& arguments, const std::string& name) {
  return std::ranges::any_of(arguments, [&](const std::string& a) { return a.starts_with(name); });
}

}  // namespace

Result<EalStart> start_eal(const std::vector<std::string>& arguments) {
  if (g_is_running) return Error{EALREADY, "the DPDK environment runs already"};
  EalStart out;
  std::vector<std::string> words = {"rocemud", "--no-telemetry", "--lcores",
                                    "0",       "--log-level",    "*:error"};
  const bool uses_huge_pages =
      !is_given(arguments, "--no-huge") && ::geteuid() == 0 && has_free_huge_pages();
  if (uses_huge_pages) {
    words.push_back("--in-memory");
  } else {
    // Without huge pages EAL knows one memory model only, which --in-memory excludes; this leaves
    // no files behind either.
    words.insert(words.end(), {"--no-huge", "--no-shconf", "-m", "256"});
    out.note = "no free huge pages: DPDK uses ordinary memory, which is slower";
  }
  if (!is_given(arguments, "-a")) words.push_back("--no-pci");
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  cpu_set_t affinity;
  ::pthread_getaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  const int parsed = ::rte_eal_init(static_cast<int>(argv.size()), argv.data());
  const int error = rte_errno;
  ::pthread_setaffinity_np(::pthread_self(), sizeof affinity, &affinity);
  if (parsed < 0) {
    return Error{error != 0 ? error : ENODEV,
                 std::string("the DPDK environment does not start: ") + ::rte_strerror(error)};
  }
  g_is_running = true;
  return out;
}

bool is_eal_running() { return g_is_running; }

void register_thread() {
  if (g_is_running && ::rte_lcore_id() == LCORE_ID_ANY) (void)::rte_thread_register();
}

}  // namespace rocemu::dpdk
