// Every capture of Linux Soft-RoCE has a twin of ours: each side of each RC or UC conversation is
// played by our engine under the personality of rxe, and what it sends is what the driver sent,
// field by field. The exceptions are listed here, each with the clause that decides.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tests/interop/twin.h"

namespace rocemu::interop {
namespace {

struct Exception {
  std::string_view capture;  ///< Empty: any.
  std::string_view field;    ///< As Difference names it.
  std::string_view reason;
};

constexpr Exception kExceptions[] = {
    {"", "RC FetchAdd atomic.compare",
     "9.3.5.3: FETCH_ADD does not use the field; rxe sends what the work request holds there, we "
     "send 0"},
    {"loss_atomic.pcap", "RC ATOMIC Acknowledge aeth.msn",
     "9.7.5.1.5: a repeated atomic is answered with the result that was kept; rxe puts its newest "
     "MSN in it, we the one of that request"},
    {"netem_loss3.pcap", "RC RDMA READ Response Last aeth.msn",
     "9.7.5.1.4: the same for a READ that is asked for again"},
    {"loss_req_mix.pcap", "opcode",
     "C9-105: the acknowledgement of a duplicate may be coalesced; ours follows the atomic result "
     "that was due"},
    {"send_inv.pcap", "RC Acknowledge aeth.syndrome",
     "9.9.6.3: the key of a plain region cannot be invalidated; rxe acknowledges, we send NAK "
     "remote access error"},
};

// Captures in which nothing is compared, and why.
const std::map<std::string_view, std::string_view>& without_twin() {
  static const std::map<std::string_view, std::string_view> captures = {
      {"netem_corrupt.pcap", "which of the corrupted packets the guest took is not in the capture"},
      {"pingpong_ud_v4.pcap", "UD, which has no connection to play"},
      {"pingpong_ud_v6.pcap", "UD, which has no connection to play"},
      {"mckey.pcap", "UD, which has no connection to play"},
      {"udaddy.pcap", "UD, which has no connection to play"},
      {"rping_reject.pcap", "messages of the connection manager alone"},
  };
  return captures;
}

bool is_excepted(std::string_view capture, const Difference& difference) {
  for (const Exception& exception : kExceptions) {
    const bool is_here = exception.capture.empty() || exception.capture == capture;
    if (is_here && exception.field == difference.field) return true;
  }
  return false;
}

TEST(Twins, SendWhatSoftRoceSent) {
  const std::filesystem::path folder = ROCEMU_CAPTURES;
  std::size_t compared = 0;
  std::set<std::string, std::less<>> exceptions_met;
  for (const auto& entry : read_manifest(folder)) {
    const std::string name = entry.at("file");
    if (without_twin().contains(name)) continue;
    SCOPED_TRACE(name);
    const auto frames = read_pcap(folder / name);
    const TwinOptions options{.may_miss_frames = name == "netem_loss3.pcap"};
    std::size_t here = 0;
    for (const Conversation& conversation : split(name, frames)) {
      for (const Side side : {Side::kA, Side::kB}) {
        const TwinResult result = play_twin(conversation, side, options);
        here += result.compared;
        for (const Difference& d : result.differences) {
          if (is_excepted(name, d)) {
            exceptions_met.insert(d.field);
          } else {
            ADD_FAILURE() << "side " << (side == Side::kA ? "a" : "b") << ", step " << d.step
                          << ": " << d.field << ": ours " << d.ours << ", theirs " << d.theirs;
          }
        }
      }
    }
    EXPECT_GT(here, 0u);
    compared += here;
  }
  EXPECT_GT(compared, 2500u);
  for (const Exception& exception : kExceptions) {
    EXPECT_TRUE(exceptions_met.contains(exception.field)) << exception.reason << ": not met";
  }
}

// The comparison itself can fail: a frame that says something else is told apart.
TEST(Twins, DifferenceIsSeen) {
  const std::filesystem::path folder = ROCEMU_CAPTURES;
  const auto frames = read_pcap(folder / "big_write_mtu1024.pcap");
  auto conversation = split("big_write_mtu1024.pcap", frames).at(0);
  const auto differences = [&] {
    return play_twin(conversation, Side::kB, {}).differences.size() +
           play_twin(conversation, Side::kA, {}).differences.size();
  };
  ASSERT_EQ(differences(), 0u);
  for (Step& step : conversation.steps) {
    if (step.from == Side::kB) step.packet.aeth.msn += 1;
  }
  EXPECT_GT(differences(), 0u);
}

}  // namespace
}  // namespace rocemu::interop
