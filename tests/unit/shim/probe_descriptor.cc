// Descriptor hygiene: copies, lifetimes, and programs that close what they did not open.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "tests/unit/shim/probe.h"

namespace rocemu::probe {
namespace {

constexpr unsigned kEnd = ~0u;

void context_ends_with_its_last_descriptor() {
  const int fd = open_device();
  EXPECT(counter("open_contexts") == 1);
  const int copies[] = {dup(fd), dup2(fd, 200), dup3(fd, 201, O_CLOEXEC), fcntl(fd, F_DUPFD, 210),
                        fcntl(fd, F_DUPFD_CLOEXEC, 220)};
  EXPECT(close(fd) == 0);
  for (const int copy : copies) {
    EXPECT(copy >= 0);
    struct stat status {};
    EXPECT(fstat(copy, &status) == 0 && S_ISCHR(status.st_mode));
    expect_alive(copy);
    EXPECT(counter("open_contexts") == 1);
    EXPECT(close(copy) == 0);
  }
  EXPECT(counter("open_contexts") == 0);
  EXPECT_ERRNO(close(fd), EBADF);
}

void copying_over_a_device_closes_it() {
  const int first = open_device();
  const int second = open_device();
  EXPECT(dup2(first, first) == first);
  EXPECT(counter("open_contexts") == 2);
  EXPECT(dup2(first, second) == second);
  EXPECT(counter("open_contexts") == 1);
  expect_alive(second);
  const int null = open("/dev/null", O_WRONLY);
  EXPECT(dup2(null, second) == second);
  EXPECT(write(second, "x", 1) == 1);
  expect_alive(first);
  EXPECT(dup2(null, first) == first);
  EXPECT(counter("open_contexts") == 0);
  EXPECT(write(first, "x", 1) == 1);
  EXPECT_ERRNO(dup2(12345, first), EBADF);
  EXPECT_ERRNO(dup3(first, first, 0), EINVAL);
}

void closing_frees_all() {
  close(open_device());  // one-time costs
  const int fds = count_fds();
  for (int i = 0; i < 50; ++i) EXPECT(close(open_device()) == 0);
  EXPECT(count_fds() == fds);
  EXPECT(counter("open_contexts") == 0);
}

void hidden_descriptors_do_not_exist() {
  const int fd = open_device();
  for (const char* prefix : {"socket:", "anon_inode:[eventfd]"}) {
    const int hidden = find_fd(prefix, 3);
    EXPECT(hidden > fd + 100);  // out of the way
    EXPECT_ERRNO(fcntl(hidden, F_GETFD), EBADF);
    EXPECT_ERRNO(fcntl(hidden, F_SETFD, 0), EBADF);
    EXPECT_ERRNO(fcntl(hidden, F_DUPFD, 0), EBADF);
    EXPECT_ERRNO(dup(hidden), EBADF);
    EXPECT_ERRNO(dup2(hidden, 5), EBADF);
    EXPECT_ERRNO(close(hidden), EBADF);
  }
  expect_alive(fd);
}

void copying_onto_a_hidden_descriptor_moves_it() {
  const int fd = open_device();
  const int null = open("/dev/null", O_WRONLY);
  for (const char* prefix : {"socket:", "anon_inode:[eventfd]"}) {
    const int hidden = find_fd(prefix, 3);
    EXPECT(dup2(null, hidden) == hidden);
    EXPECT(write(hidden, "x", 1) == 1);
    expect_alive(fd);
    EXPECT(post_send(fd, 0) == 32);
    EXPECT(close(hidden) == 0);
    expect_alive(fd);
  }
  EXPECT(close(fd) == 0);
  EXPECT(counter("open_contexts") == 0);
}

// As daemons do at their start.
void closing_everything_spares_the_shim() {
  const int kept = open_device();
  EXPECT(dup2(kept, 3) == 3);
  if (kept != 3) EXPECT(close(kept) == 0);
  for (int fd = 4; fd < 20'000; ++fd) close(fd);
  expect_alive(3);
  EXPECT(close_range(4, kEnd, 0) == 0);
  expect_alive(3);
  closefrom(4);
  expect_alive(3);
  EXPECT(post_send(3, 0) == 32);
  EXPECT(counter("open_contexts") == 1);
}

void closing_ranges_ends_contexts_in_them() {
  const int first = open_device();
  const int second = open_device();
  int channel = -1;
  EXPECT(create_channel(second, channel) > 0);
  EXPECT(second == first + 1);
  EXPECT(close_range(static_cast<unsigned>(second), kEnd, 0) == 0);
  EXPECT(counter("open_contexts") == 1);
  EXPECT_ERRNO(fcntl(second, F_GETFD), EBADF);
  EXPECT_ERRNO(fcntl(channel, F_GETFD), EBADF);
  expect_alive(first);
  closefrom(3);
  EXPECT(counter("open_contexts") == 0);
  expect_alive(open_device());
  EXPECT_ERRNO(close_range(9, 8, 0), EINVAL);
}

void close_range_flags_keep_their_meaning() {
  const int fd = open(kDevice, O_RDWR);
  EXPECT(fcntl(fd, F_GETFD) == 0);
  EXPECT(close_range(3, kEnd, 1 << 2) == 0);  // CLOSE_RANGE_CLOEXEC
  EXPECT(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  expect_alive(fd);
  EXPECT_ERRNO(close_range(3, kEnd, 1 << 9), EINVAL);
  expect_alive(fd);
}

// A descriptor closed without the interposers: whoever gets its number next is not a device.
void raw_close_is_noticed() {
  const int fd = open_device();
  EXPECT(syscall(SYS_close, fd) == 0);
  int ends[2] = {};
  EXPECT(pipe(ends) == 0);
  EXPECT(ends[0] == fd || ends[1] == fd);
  const int end = ends[1];
  const std::uint32_t like_a_command[4] = {0, 4, 0, 0};
  EXPECT(write(end, like_a_command, sizeof like_a_command) == sizeof like_a_command);

  const int again = open_device();
  EXPECT(syscall(SYS_close, again) == 0);
  const int file = open("/dev/null", O_WRONLY);
  EXPECT(file == again);
  struct stat status {};
  EXPECT(fstat(file, &status) == 0 && status.st_rdev != 0 && write(file, "x", 1) == 1);
  EXPECT(counter("open_contexts") <= 1);
}

void many_contexts_live_together() {
  int fds[20];
  for (int& fd : fds) fd = open_device();
  EXPECT(counter("open_contexts") == 20);
  for (const int fd : fds) expect_alive(fd);
  for (const int fd : fds) EXPECT(close(fd) == 0);
  EXPECT(counter("open_contexts") == 0);
}

constexpr Case kCases[] = {
    {"context_ends_with_its_last_descriptor", context_ends_with_its_last_descriptor},
    {"copying_over_a_device_closes_it", copying_over_a_device_closes_it},
    {"closing_frees_all", closing_frees_all},
    {"hidden_descriptors_do_not_exist", hidden_descriptors_do_not_exist},
    {"copying_onto_a_hidden_descriptor_moves_it", copying_onto_a_hidden_descriptor_moves_it},
    {"closing_everything_spares_the_shim", closing_everything_spares_the_shim},
    {"closing_ranges_ends_contexts_in_them", closing_ranges_ends_contexts_in_them},
    {"close_range_flags_keep_their_meaning", close_range_flags_keep_their_meaning},
    {"raw_close_is_noticed", raw_close_is_noticed},
    {"many_contexts_live_together", many_contexts_live_together},
};

}  // namespace

std::span<const Case> descriptor_cases() { return kCases; }

}  // namespace rocemu::probe
