// Processes: fork, vfork, spawn, exec.
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "tests/unit/shim/probe.h"

extern char** environ;

namespace rocemu::probe {
namespace {

int fork_or_die() {
  const int pid = fork();
  EXPECT(pid >= 0);
  return pid;
}

void child_of_fork_has_no_contexts() {
  const int fd = open_device();
  const int pid = fork_or_die();
  if (pid == 0) {
    std::uint32_t response[2] = {};
    EXPECT_ERRNO(dealloc_pd(fd), EIO);
    EXPECT_ERRNO(get_context(fd, response), EIO);
    EXPECT_ERRNO(post_send(fd, 0), EIO);
    EXPECT_ERRNO(req_notify(fd, 0, false), EIO);
    EXPECT(find_fd("socket:", 3) == -1);  // the parent's connection is not held open
    const int own = open_device();
    expect_alive(own);
    EXPECT(counter("open_contexts") == 2);
    EXPECT(close(own) == 0);
    EXPECT(counter("open_contexts") == 1);
    EXPECT(close(fd) == 0);
    const int pid_below = fork_or_die();
    if (pid_below == 0) {
      expect_alive(open_device());
      std::_Exit(0);
    }
    expect_success(pid_below);
    std::_Exit(0);
  }
  expect_success(pid);
  expect_alive(fd);
  EXPECT(post_send(fd, 0) == 32);
  await_counter("open_contexts", 1);
}

// fork() as programs write it that avoid libc's.
void child_of_raw_fork_has_no_contexts() {
  const int fd = open_device();
  const int pid = static_cast<int>(syscall(SYS_fork));
  if (pid == 0) {
    EXPECT_ERRNO(post_send(fd, 0), EIO);
    EXPECT_ERRNO(dealloc_pd(fd), EIO);
    EXPECT(close(fd) == 0);
    std::_Exit(0);
  }
  expect_success(pid);
  expect_alive(fd);
}

void context_dies_with_the_process_that_opened_it() {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const int parent = fork_or_die();
  if (parent == 0) {
    const int fd = open_device();
    const int child = fork_or_die();
    if (child != 0) std::_Exit(0);
    // The child outlives it, with the descriptor.
    EXPECT(fcntl(fd, F_GETFD) >= 0);
    await_counter("open_contexts", 0);
    EXPECT(write(ends[1], "k", 1) == 1);
    std::_Exit(0);
  }
  expect_success(parent);
  EXPECT(close(ends[1]) == 0);
  char answer = 0;
  EXPECT(read(ends[0], &answer, 1) == 1 && answer == 'k');
}

// What Python's subprocess does between vfork and exec, in memory that is the parent's.
void child_of_vfork_leaves_the_parent_alone() {
  const int fd = open_device();
  int channel = -1;
  EXPECT(create_channel(fd, channel) > 0);
  const int null = open("/dev/null", O_RDWR);
  char path[] = "/bin/true";
  char* arguments[] = {path, nullptr};
  for (int round = 0; round < 3; ++round) {
    const int pid = vfork();
    if (pid == 0) {
      dup2(null, fd);
      dup2(fd, 150);
      close(channel);
      close(find_fd("socket:", 3));
      if (round == 0) closefrom(3);
      if (round == 1) close_range(3, ~0u, 0);
      if (round == 2) {
        for (int i = 3; i < 20'000; ++i) close(i);
      }
      execve(path, arguments, environ);
      _exit(1);
    }
    expect_success(pid);
    expect_alive(fd);
    EXPECT(post_send(fd, 0) == 32);
    std::uint32_t seen = 0;
    EXPECT(create_cq(fd, channel, seen) > 0 && seen >= 7000);
    EXPECT(counter("open_contexts") == 1);
    EXPECT(counter("exec_notices") == 0);
  }
}

void child_of_vfork_cannot_open_a_device() {
  const int pid = vfork();
  if (pid == 0) {
    const int fd = open(kDevice, O_RDWR);
    _exit(fd == -1 && errno == EAGAIN ? 0 : 1);
  }
  expect_success(pid);
  expect_alive(open_device());
}

void spawned_programs_leave_the_parent_alone() {
  const int fd = open_device();
  posix_spawn_file_actions_t actions;
  EXPECT(posix_spawn_file_actions_init(&actions) == 0);
  EXPECT(posix_spawn_file_actions_adddup2(&actions, 1, fd) == 0);
  EXPECT(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
  char path[] = "/bin/true";
  char* arguments[] = {path, nullptr};
  int pid = 0;
  EXPECT(posix_spawn(&pid, path, &actions, nullptr, arguments, environ) == 0);
  expect_success(pid);
  EXPECT(system("exit 0") == 0);
  expect_alive(fd);
  EXPECT(counter("exec_notices") == 0);
}

void exec_is_announced() {
  const int fd = open_device();
  EXPECT(setenv("PATH", "/bin", 1) == 0);  // no directories that some users may not search
  char* none[] = {nullptr};
  EXPECT_ERRNO(execve("/nonexistent", none, environ), ENOENT);
  EXPECT(counter("exec_notices") == 1 && counter("exec_failures") == 1);
  EXPECT_ERRNO(execl("/nonexistent", "a", "b", static_cast<char*>(nullptr)), ENOENT);
  EXPECT_ERRNO(execlp("nonexistent-program", "a", static_cast<char*>(nullptr)), ENOENT);
  EXPECT_ERRNO(execv("/nonexistent", none), ENOENT);
  EXPECT_ERRNO(execvp("nonexistent-program", none), ENOENT);
  EXPECT_ERRNO(execle("/nonexistent", "a", static_cast<char*>(nullptr), environ), ENOENT);
  EXPECT(counter("exec_notices") == 6 && counter("exec_failures") == 6);
  expect_alive(fd);
  execl(self_path, self_path, "exec_second_program", "x", static_cast<char*>(nullptr));
  EXPECT(false);
}

// The program that exec_is_announced becomes.
void exec_second_program() {
  EXPECT(counter("exec_notices") == 7 && counter("exec_failures") == 6);
  await_counter("open_contexts", 0);
  expect_alive(open_device());
}

void exec_without_contexts_is_silent() {
  EXPECT(close(open_device()) == 0);
  char* none[] = {nullptr};
  EXPECT_ERRNO(execve("/nonexistent", none, environ), ENOENT);
  EXPECT(counter("exec_notices") == 0);
}

// Arguments and environment arrive whole through the list forms.
void exec_lists_pass_everything() {
  const int pid = fork_or_die();
  if (pid == 0) {
    const char* environment[] = {"PROBE=yes", nullptr};
    execle("/bin/sh", "sh", "-c", "[ \"$PROBE$1$2$3\" = yes123 ]", "name", "1", "2", "3",
           static_cast<char*>(nullptr), environment);
    std::_Exit(9);
  }
  expect_success(pid);
  const int second = fork_or_die();
  if (second == 0) {
    execlp("sh", "sh", "-c", "[ $# = 0 ]", static_cast<char*>(nullptr));
    std::_Exit(9);
  }
  expect_success(second);
}

constexpr Case kCases[] = {
    {"child_of_fork_has_no_contexts", child_of_fork_has_no_contexts},
    {"child_of_raw_fork_has_no_contexts", child_of_raw_fork_has_no_contexts},
    {"context_dies_with_the_process_that_opened_it", context_dies_with_the_process_that_opened_it},
    {"child_of_vfork_leaves_the_parent_alone", child_of_vfork_leaves_the_parent_alone},
    {"child_of_vfork_cannot_open_a_device", child_of_vfork_cannot_open_a_device},
    {"spawned_programs_leave_the_parent_alone", spawned_programs_leave_the_parent_alone},
    {"exec_is_announced", exec_is_announced},
    {"exec_second_program", exec_second_program},
    {"exec_without_contexts_is_silent", exec_without_contexts_is_silent},
    {"exec_lists_pass_everything", exec_lists_pass_everything},
};

}  // namespace

std::span<const Case> process_cases() { return kCases; }

}  // namespace rocemu::probe
