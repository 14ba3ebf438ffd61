// write() on a device: commands that the daemon answers, and those that shared memory answers.
#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "rocemu/abi/doorbell.h"
#include "tests/unit/shim/probe.h"

namespace rocemu::probe {
namespace {

void commands_go_to_the_daemon_and_back() {
  const int fd = open_device();
  const long before = counter("commands");
  std::uint32_t response[2] = {};
  EXPECT(get_context(fd, response) == 16);
  EXPECT(response[1] == 0xa7a6'a5a4);  // the fake's pattern
  const int async_fd = static_cast<int>(response[0]);
  char text[8] = {};
  EXPECT(read(async_fd, text, 4) == 4 && std::strcmp(text, "pipe") == 0);
  EXPECT((fcntl(async_fd, F_GETFD) & FD_CLOEXEC) != 0);
  EXPECT_ERRNO(dealloc_pd(fd), ENXIO);
  EXPECT(counter("commands") == before + 2);
  EXPECT(close(async_fd) == 0 && close(fd) == 0);
}

constexpr std::uint32_t kSlotBelowRts = 999'999;  // as fake_daemon.h says

void bad_commands_fail_as_in_the_kernel() {
  const int fd = open_device();
  const char bytes[4] = {};
  EXPECT_ERRNO(write(fd, bytes, 4), EINVAL);
  EXPECT_ERRNO(write(fd, bytes, 0), EINVAL);
  std::vector<char> huge(1 << 20);
  EXPECT_ERRNO(write(fd, huge.data(), huge.size()), EINVAL);
  // Handles outside the doorbell page.
  EXPECT_ERRNO(post_send(fd, kMaxQpSlots), EINVAL);
  EXPECT_ERRNO(post_send(fd, make_handle(1, 0)), EINVAL);
  EXPECT_ERRNO(post_send(fd, 0xffff'ffff), EINVAL);
  EXPECT_ERRNO(req_notify(fd, kMaxCqSlots, false), EINVAL);
  EXPECT_ERRNO(post_send(fd, kSlotBelowRts), EINVAL);
  expect_alive(fd);
}

void bad_response_pointer_is_efault() {
  const int fd = open_device();
  const int fds = count_fds();
  struct {
    ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_GET_CONTEXT, 4, 2};
    std::uint64_t response = 8;  // nothing is mapped there
  } command;
  EXPECT_ERRNO(write(fd, &command, sizeof command), EFAULT);
  EXPECT(count_fds() == fds);
  void* read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  command.response = reinterpret_cast<std::uint64_t>(read_only);
  EXPECT_ERRNO(write(fd, &command, sizeof command), EFAULT);
  EXPECT(count_fds() == fds);
  expect_alive(fd);
}

void patches_are_stored_where_the_command_points() {
  const int fd = open_device();
  unsigned char room[32] = {};
  struct {
    ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_MODIFY_SRQ, 8, 0};
    std::uint32_t body[4] = {1, 1, 8, 0};
    rxe_modify_srq_cmd provider{};
  } command;
  command.provider.mmap_info_addr = reinterpret_cast<std::uint64_t>(room);
  EXPECT(write(fd, &command, sizeof command) == 32);
  for (unsigned i = 0; i < 16; ++i) EXPECT(room[i] == 0xa0 + i);
  EXPECT(room[16] == 0);
  command.provider.mmap_info_addr = 16;
  EXPECT_ERRNO(write(fd, &command, sizeof command), EFAULT);
  expect_alive(fd);
}

void vectors_are_commands_one_by_one() {
  const int fd = open_device();
  std::uint32_t first[2] = {};
  std::uint32_t second[2] = {};
  struct Get {
    ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_GET_CONTEXT, 4, 2};
    std::uint64_t response;
  };
  Get a{.response = reinterpret_cast<std::uint64_t>(first)};
  Get b{.response = reinterpret_cast<std::uint64_t>(second)};
  const iovec pieces[3] = {{&a, sizeof a}, {&b, sizeof b}, {&b, 3}};
  EXPECT(writev(fd, pieces, 2) == 32);
  EXPECT(first[0] != 0 && second[0] != 0 && first[0] != second[0]);
  EXPECT(writev(fd, pieces, 3) == 32);
  EXPECT_ERRNO(writev(fd, pieces + 2, 1), EINVAL);
}

void channels_are_translated() {
  const int fd = open_device();
  const int other = open_device();
  int channel = -1;
  int foreign = -1;
  EXPECT(create_channel(fd, channel) > 0 && channel >= 0);
  EXPECT(create_channel(other, foreign) > 0);
  std::uint32_t seen = 0;
  EXPECT(create_cq(fd, -1, seen) > 0 && seen == 0xffff'ffff);
  EXPECT(create_cq(fd, channel, seen) > 0 && seen >= 7000);
  const std::uint32_t handle = seen;
  EXPECT(create_cq_ex(fd, channel, seen) > 0 && seen == handle);
  const int copy = dup(channel);
  EXPECT(create_cq(fd, copy, seen) > 0 && seen == handle);
  const int high = fcntl(channel, F_DUPFD_CLOEXEC, 300);
  EXPECT(high >= 300 && create_cq_ex(fd, high, seen) > 0 && seen == handle);

  EXPECT_ERRNO(create_cq(fd, foreign, seen), EBADF);
  EXPECT_ERRNO(create_cq(fd, fd, seen), EBADF);
  EXPECT_ERRNO(create_cq(fd, 0, seen), EBADF);
  EXPECT_ERRNO(create_cq(fd, 1 << 25, seen), EBADF);
  EXPECT(close(channel) == 0);
  EXPECT_ERRNO(create_cq(fd, channel, seen), EBADF);
  EXPECT(create_cq(fd, copy, seen) > 0 && seen == handle);
  expect_alive(fd);
}

void handler(int) {}

std::atomic<int> handled{0};
std::atomic<int> handler_fd{-1};

void verbs_in_a_handler(int) {
  const int saved = errno;
  if (dealloc_pd(handler_fd.load()) != -1 || errno != ENXIO) std::_Exit(3);
  handled.fetch_add(1);
  errno = saved;
}

// Handlers that call verbs themselves, while their thread is within a command.
void signals_do_not_disturb_commands() {
  const int fd = open_device();
  handler_fd.store(fd);
  struct sigaction action {};
  action.sa_handler = verbs_in_a_handler;  // no SA_RESTART: every call may see EINTR
  EXPECT(sigaction(SIGALRM, &action, nullptr) == 0);
  const itimerval often{{0, 500}, {0, 500}};
  EXPECT(setitimer(ITIMER_REAL, &often, nullptr) == 0);
  const time_t deadline = time(nullptr) + 20;
  int rounds = 0;
  while (handled.load() < 200 || rounds < 2000) {
    EXPECT_ERRNO(dealloc_pd(fd), ENXIO);
    ++rounds;
    EXPECT(time(nullptr) < deadline);
  }
  const itimerval never{};
  EXPECT(setitimer(ITIMER_REAL, &never, nullptr) == 0);
  sigset_t mask;
  EXPECT(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0 && sigismember(&mask, SIGALRM) == 0);
  EXPECT(signal(SIGALRM, handler) != SIG_ERR);
}

void threads_share_a_context() {
  const int fd = open_device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([fd] {
      for (int i = 0; i < 300; ++i) {
        std::uint32_t response[2] = {};
        EXPECT(get_context(fd, response) == 16);
        EXPECT(close(static_cast<int>(response[0])) == 0);
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 60; ++i) EXPECT(close(open_device()) == 0);
    });
  }
  for (auto& thread : threads) thread.join();
  expect_alive(fd);
  EXPECT(counter("open_contexts") == 1);
}

// A thread with the smallest stack that threads may have.
void commands_need_little_stack() {
  static int fd = open_device();
  pthread_attr_t attributes;
  EXPECT(pthread_attr_init(&attributes) == 0);
  EXPECT(pthread_attr_setstacksize(&attributes, 16384) == 0);
  pthread_t thread;
  EXPECT(pthread_create(
             &thread, &attributes,
             [](void*) -> void* {
               std::uint32_t response[2] = {};
               EXPECT(get_context(fd, response) == 16);
               EXPECT(post_send(fd, 1) == 32);
               return nullptr;
             },
             nullptr) == 0);
  EXPECT(pthread_join(thread, nullptr) == 0);
}

// Rings, as the provider sees them: memory behind the device's descriptor.
std::atomic<std::uint32_t>* map_ring(int fd) {
  void* memory = mmap(nullptr, 64 * 1024, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT(memory != MAP_FAILED);
  return static_cast<std::atomic<std::uint32_t>*>(memory);
}

void post_and_wait(int fd, std::atomic<std::uint32_t>* words, std::uint32_t slot, time_t deadline) {
  const std::uint32_t posted = words[slot].load() + 1;
  words[slot].store(posted, std::memory_order_release);
  EXPECT(post_send(fd, slot) == 32);
  for (unsigned spins = 0; words[2048 + slot].load(std::memory_order_acquire) != posted; ++spins) {
    if (spins % 1024 == 1023) EXPECT(time(nullptr) < deadline);
    std::this_thread::yield();
  }
}

void doorbells_reach_a_sleeping_worker() {
  const int fd = open_device();
  const long commands = counter("commands");
  std::atomic<std::uint32_t>* words = map_ring(fd);
  const time_t deadline = time(nullptr) + 40;
  for (int i = 0; i < 10'000; ++i) post_and_wait(fd, words, 3, deadline);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([=] {
      for (int i = 0; i < 5'000; ++i) post_and_wait(fd, words, 10 + t, deadline);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT(req_notify(fd, 0, false) == 16);
  EXPECT(req_notify(fd, kMaxCqSlots - 1, true) == 16);
  EXPECT(counter("commands") == commands);  // no command went to the daemon
}

void doorbells_choose_their_shard() {
  const int fd = open_device();
  std::atomic<std::uint32_t>* words = map_ring(fd);
  const time_t deadline = time(nullptr) + 20;
  std::atomic<std::uint32_t>* second = words + 4096;
  second[5].store(1, std::memory_order_release);
  EXPECT(post_send(fd, make_handle(1, 5)) == 32);
  while (second[2048 + 5].load(std::memory_order_acquire) != 1) {
    EXPECT(time(nullptr) < deadline);
    std::this_thread::yield();
  }
  EXPECT(words[2048 + 5].load() == 0);
  EXPECT_ERRNO(post_send(fd, make_handle(2, 5)), EINVAL);
}

// The device's memory cannot be resized; holes can be punched, and harm nobody but the puncher.
void rings_cannot_be_truncated() {
  const int fd = open_device();
  EXPECT_ERRNO(ftruncate(fd, 0), EPERM);
  EXPECT_ERRNO(ftruncate(fd, 1 << 20), EPERM);
  EXPECT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 64 * 1024) == 0);
  EXPECT(post_send(fd, 0) == 32);
  expect_alive(fd);
}

// The daemon answers nonsense: the command fails with EIO, once and for all, and nothing leaks.
void nonsense_is_eio() {
  const int fd = open_device();
  std::uint32_t response[2] = {};
  EXPECT(get_context(fd, response) == 16);
  EXPECT(close(static_cast<int>(response[0])) == 0);
  const int fds = count_fds();
  EXPECT_ERRNO(get_context(fd, response), EIO);
  EXPECT(count_fds() == fds || count_fds() == fds - 1);  // the broken connection may be closed
  EXPECT(fcntl(fd, F_GETFD) == FD_CLOEXEC);              // the descriptor stays
  EXPECT(close(fd) == 0);
}

void nonsense_patch_is_eio() {
  const int fd = open_device();
  unsigned char room[32] = {};
  struct {
    ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_MODIFY_SRQ, 8, 0};
    std::uint32_t body[4] = {1, 1, 8, 0};
    rxe_modify_srq_cmd provider{};
  } command;
  command.provider.mmap_info_addr = reinterpret_cast<std::uint64_t>(room);
  EXPECT_ERRNO(write(fd, &command, sizeof command), EIO);
  for (const unsigned char byte : room) EXPECT(byte == 0);
}

void dead_daemon_is_eio() {
  const int fd = open_device();
  std::uint32_t response[2] = {};
  EXPECT_ERRNO(get_context(fd, response), EIO);
  EXPECT_ERRNO(dealloc_pd(fd), EIO);
  EXPECT(post_send(fd, 0) == 32);  // rings into the void
  EXPECT(close(fd) == 0);
}

void failing_open_leaks_nothing() {
  EXPECT(access(kDevice, R_OK) == 0);
  const int fds = count_fds();
  for (int i = 0; i < 3; ++i) {
    errno = 0;
    EXPECT(open(kDevice, O_RDWR) == -1);
    EXPECT(errno == EIO);
    EXPECT(count_fds() == fds);
  }
}

constexpr Case kCases[] = {
    {"commands_go_to_the_daemon_and_back", commands_go_to_the_daemon_and_back},
    {"bad_commands_fail_as_in_the_kernel", bad_commands_fail_as_in_the_kernel},
    {"bad_response_pointer_is_efault", bad_response_pointer_is_efault},
    {"patches_are_stored_where_the_command_points", patches_are_stored_where_the_command_points},
    {"vectors_are_commands_one_by_one", vectors_are_commands_one_by_one},
    {"channels_are_translated", channels_are_translated},
    {"signals_do_not_disturb_commands", signals_do_not_disturb_commands},
    {"threads_share_a_context", threads_share_a_context},
    {"commands_need_little_stack", commands_need_little_stack},
    {"doorbells_reach_a_sleeping_worker", doorbells_reach_a_sleeping_worker},
    {"doorbells_choose_their_shard", doorbells_choose_their_shard},
    {"rings_cannot_be_truncated", rings_cannot_be_truncated},
    {"nonsense_is_eio", nonsense_is_eio},
    {"nonsense_patch_is_eio", nonsense_patch_is_eio},
    {"dead_daemon_is_eio", dead_daemon_is_eio},
    {"failing_open_leaks_nothing", failing_open_leaks_nothing},
};

}  // namespace

std::span<const Case> command_cases() { return kCases; }

}  // namespace rocemu::probe
