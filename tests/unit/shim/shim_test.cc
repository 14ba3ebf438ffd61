// Runs the probe's cases under the shim against a fake daemon, one process a case. Paths of the
// shim and the probe come from the build (ROCEMU_SHIM_PATH, ROCEMU_PROBE_PATH).
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/shim/fake_daemon.h"

namespace rocemu::test {
namespace {

struct Outcome {
  int status = -1;  ///< Exit status; 128 + the signal's number when one ended it.
  std::string errors;
};

struct Environment {
  std::string directory;
  bool is_quiet = false;
};

// Runs a program under the shim; kills it after 50 seconds.
Outcome run(const std::vector<std::string>& command, const Environment& environment) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const int pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("LD_PRELOAD", ROCEMU_SHIM_PATH, 1);
    setenv(abi::kRuntimeDirVariable, environment.directory.c_str(), 1);
    if (environment.is_quiet) setenv("ROCEMU_QUIET", "1", 1);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait{ends[0], POLLIN, 0};
    char text[4096];
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) {
      outcome.errors += "(timed out)";
      kill(pid, SIGKILL);
      break;
    }
    const ssize_t count = read(ends[0], text, sizeof text);
    if (count <= 0) break;
    outcome.errors.append(text, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void expect_case_passes(const std::string& name, const FakeOptions& options) {
  const FakeDaemon daemon(options);
  const Outcome outcome = run({ROCEMU_PROBE_PATH, name}, {daemon.directory()});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
}

std::string case_name(const testing::TestParamInfo<const char*>& one) { return one.param; }

class ProbeCase : public testing::TestWithParam<const char*> {};

TEST_P(ProbeCase, Passes) { expect_case_passes(GetParam(), {}); }

INSTANTIATE_TEST_SUITE_P(Device, ProbeCase,
                         testing::Values("device_looks_like_a_character_device",
                                         "open_descriptor_looks_like_the_device",
                                         "other_devices_do_not_exist",
                                         "ordinary_paths_are_left_alone",
                                         "directories_list_devices", "sysfs_is_redirected",
                                         "counters_are_live", "rdma_netlink_is_refused"),
                         case_name);

INSTANTIATE_TEST_SUITE_P(
    Command, ProbeCase,
    testing::Values("commands_go_to_the_daemon_and_back", "bad_commands_fail_as_in_the_kernel",
                    "bad_response_pointer_is_efault", "patches_are_stored_where_the_command_points",
                    "vectors_are_commands_one_by_one", "channels_are_translated",
                    "signals_do_not_disturb_commands", "threads_share_a_context",
                    "commands_need_little_stack", "doorbells_reach_a_sleeping_worker",
                    "rings_cannot_be_truncated"),
    case_name);

INSTANTIATE_TEST_SUITE_P(Descriptor, ProbeCase,
                         testing::Values("context_ends_with_its_last_descriptor",
                                         "copying_over_a_device_closes_it", "closing_frees_all",
                                         "hidden_descriptors_do_not_exist",
                                         "copying_onto_a_hidden_descriptor_moves_it",
                                         "closing_everything_spares_the_shim",
                                         "closing_ranges_ends_contexts_in_them",
                                         "close_range_flags_keep_their_meaning",
                                         "raw_close_is_noticed", "many_contexts_live_together"),
                         case_name);

INSTANTIATE_TEST_SUITE_P(
    Process, ProbeCase,
    testing::Values("child_of_fork_has_no_contexts", "child_of_raw_fork_has_no_contexts",
                    "context_dies_with_the_process_that_opened_it",
                    "child_of_vfork_leaves_the_parent_alone", "child_of_vfork_cannot_open_a_device",
                    "spawned_programs_leave_the_parent_alone", "exec_is_announced",
                    "exec_without_contexts_is_silent", "exec_lists_pass_everything"),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Overlay, ProbeCase,
    testing::Values("overlay_yields_after_many_empty_polls", "overlay_counts_by_thread",
                    "overlay_keeps_providers_apart", "overlay_leaves_hardware_alone",
                    "rereg_mr_is_a_command_and_updates_the_region",
                    "rereg_mr_checks_its_input_first", "memory_verbs_of_hardware_are_its_own",
                    "advice_goes_to_the_daemon_in_pieces",
                    "reset_drops_the_completions_and_nothing_else_does",
                    "reset_waits_for_polls_of_other_threads_and_not_for_its_own",
                    "reset_leaves_a_context_that_the_overlay_missed_alone",
                    "an_unended_poll_of_another_thread_does_not_block_reset_for_ever"),
    case_name);

TEST(ShimShards, DoorbellsChooseTheirShard) {
  FakeOptions options;
  options.shard_count = 2;
  expect_case_passes("doorbells_choose_their_shard", options);
}

class HostileReply : public testing::TestWithParam<Lie> {};

// Lies that a command's reply can tell.
TEST_P(HostileReply, ToACommandIsEio) {
  FakeOptions options;
  options.command_lie = GetParam();
  options.commands_before_lie = 1;
  expect_case_passes("nonsense_is_eio", options);
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileReply,
                         testing::Values(Lie::kShortHeader, Lie::kWrongMagic, Lie::kWrongSequence,
                                         Lie::kHugeLength, Lie::kBadError, Lie::kHangUp,
                                         Lie::kNoPayload, Lie::kTooFewFds, Lie::kTooManyFds,
                                         Lie::kHugeResponse, Lie::kWideResponse, Lie::kBadFdOffset,
                                         Lie::kUnaskedFd));

class HostilePatch : public testing::TestWithParam<Lie> {};

TEST_P(HostilePatch, IsEioAndStoresNothing) {
  FakeOptions options;
  options.command_lie = GetParam();
  expect_case_passes("nonsense_patch_is_eio", options);
}

INSTANTIATE_TEST_SUITE_P(Lies, HostilePatch, testing::Values(Lie::kWildPatch, Lie::kHugePatch));

class HostileOpen : public testing::TestWithParam<Lie> {};

TEST_P(HostileOpen, IsEioAndLeaksNothing) {
  FakeOptions options;
  options.open_lie = GetParam();
  expect_case_passes("failing_open_leaks_nothing", options);
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileOpen,
                         testing::Values(Lie::kShortHeader, Lie::kWrongMagic, Lie::kWrongSequence,
                                         Lie::kHugeLength, Lie::kBadError, Lie::kHangUp,
                                         Lie::kNoPayload, Lie::kTooFewFds, Lie::kTooManyFds,
                                         Lie::kSmallDoorbell, Lie::kManyShards));

TEST(ShimDeath, CommandsFailAndTheDescriptorStays) {
  FakeOptions options;
  options.command_lie = Lie::kHangUp;
  expect_case_passes("dead_daemon_is_eio", options);
}

TEST(ShimWithoutDaemon, NothingIsThereAndTheUserIsToldOnce) {
  const Outcome outcome =
      run({ROCEMU_PROBE_PATH, "nothing_is_there_without_a_daemon"}, {"/tmp/rocemu-no-such-dir"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("no daemon at /tmp/rocemu-no-such-dir/rocemud.sock"),
            std::string::npos)
      << outcome.errors;
  EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
}

TEST(ShimWithoutDaemon, QuietIsQuiet) {
  const Outcome outcome = run({ROCEMU_PROBE_PATH, "nothing_is_there_without_a_daemon"},
                              {"/tmp/rocemu-no-such-dir", true});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.errors, "");
}

TEST(ShimWithoutDaemon, AnotherProtocolVersionIsNamed) {
  FakeOptions options;
  options.protocol_version = 99;
  const FakeDaemon daemon(options);
  const Outcome outcome =
      run({ROCEMU_PROBE_PATH, "nothing_is_there_without_a_daemon"}, {daemon.directory()});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("another version of the protocol"), std::string::npos);
}

// libibverbs itself, over the fake's sysfs.
TEST(ShimStock, IbvDevicesListsTheDevices) {
  const FakeDaemon daemon({});
  const Outcome outcome = run({"/usr/bin/ibv_devices"}, {daemon.directory()});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("roce0"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("roce1"), std::string::npos) << outcome.errors;
}

// Shells and interpreters fork, vfork and close descriptors all day.
TEST(ShimStock, ShellsWork) {
  const FakeDaemon daemon({});
  const Outcome outcome =
      run({"/bin/sh", "-c", "ls /sys/class/infiniband | sort | tr '\\n' ' '; (exit 3); echo $?"},
          {daemon.directory()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.errors, "roce0 roce1 3\n");
}

}  // namespace
}  // namespace rocemu::test
