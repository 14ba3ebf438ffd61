// The program that the shim's tests run under LD_PRELOAD: one case a run, named on the command
// line. It is an ordinary program (no sanitizer, no gtest): it calls libc as an application would,
// stops at the first expectation that fails, and says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::fprintf(stderr, "%s:%d: failed: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, \
                   errno, std::strerror(errno));                                                 \
      std::_Exit(1);                                                                             \
    }                                                                                            \
  } while (false)

/// Expects a call to fail with an errno.
#define EXPECT_ERRNO(call, expected) \
  do {                               \
    errno = 0;                       \
    EXPECT((call) == -1);            \
    EXPECT(errno == (expected));     \
  } while (false)

namespace rocemu::probe {

inline constexpr char kDevice[] = "/dev/infiniband/uverbs0";
inline constexpr char kCounters[] = "/sys/class/infiniband/roce0/ports/1/counters/";

struct Case {
  const char* name;
  void (*run)();
};

/// Tables of cases, one a file.
std::span<const Case> device_cases();
std::span<const Case> command_cases();
std::span<const Case> descriptor_cases();
std::span<const Case> process_cases();
std::span<const Case> library_cases();

/// The program's own path, for cases that execute it again.
extern const char* self_path;

int open_device();
/// What the fake daemon counted, read through the emulated sysfs.
long counter(const char* name);
/// Waits (10 s at most) until a counter has a value.
void await_counter(const char* name, long value);
/// Open descriptors of this process, hidden ones included, but for the one that counts them.
int count_fds();
/// The number of a descriptor whose /proc/self/fd link starts with `prefix`, at or above `first`;
/// -1: none.
int find_fd(const char* prefix, int first);

// Commands. All return what write() returned.
ssize_t get_context(int fd, std::uint32_t (&response)[2]);
ssize_t create_channel(int fd, int& channel);
ssize_t create_cq(int fd, int channel, std::uint32_t& seen_channel);
ssize_t create_cq_ex(int fd, int channel, std::uint32_t& seen_channel);
ssize_t post_send(int fd, std::uint32_t qp_handle);
ssize_t req_notify(int fd, std::uint32_t cq_handle, bool is_solicited_only);
/// A command that the fake daemon refuses with ENXIO.
ssize_t dealloc_pd(int fd);
/// EXPECTs that the context of `fd` answers commands.
void expect_alive(int fd);
/// Waits for a child and EXPECTs that it exited with 0.
void expect_success(int pid);

}  // namespace rocemu::probe
