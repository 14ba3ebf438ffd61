// Runs one case; what the cases share.
#include <dirent.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "tests/unit/shim/probe.h"

namespace rocemu::probe {

const char* self_path = nullptr;

namespace {

// The header and a body as one write(): the bodies end in flexible arrays and cannot be members.
template <typename Body>
ssize_t write_command(int fd, std::uint32_t code, const Body& body, std::size_t response_bytes) {
  std::byte bytes[sizeof(ib_uverbs_cmd_hdr) + sizeof(Body)];
  const ib_uverbs_cmd_hdr header{code, sizeof bytes / 4,
                                 static_cast<std::uint16_t>(response_bytes / 4)};
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + sizeof header, &body, sizeof body);
  return write(fd, bytes, sizeof bytes);
}

std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

}  // namespace

int open_device() {
  const int fd = open(kDevice, O_RDWR | O_CLOEXEC);
  EXPECT(fd >= 0);
  return fd;
}

long counter(const char* name) {
  char path[256];
  std::snprintf(path, sizeof path, "%s%s", kCounters, name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  EXPECT(fd >= 0);
  char text[64] = {};
  EXPECT(read(fd, text, sizeof text - 1) > 0);
  EXPECT(close(fd) == 0);
  return std::atol(text);
}

void await_counter(const char* name, long value) {
  const time_t deadline = time(nullptr) + 10;
  while (counter(name) != value) EXPECT(time(nullptr) < deadline);
}

int count_fds() {
  DIR* directory = opendir("/proc/self/fd");
  EXPECT(directory != nullptr);
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count - 3;  // ".", ".." and the directory's own
}

int find_fd(const char* prefix, int first) {
  for (int fd = first; fd < 20'000; ++fd) {
    char link[64];
    char target[256] = {};
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) <= 0) continue;
    if (std::strncmp(target, prefix, std::strlen(prefix)) == 0) return fd;
  }
  return -1;
}

ssize_t get_context(int fd, std::uint32_t (&response)[2]) {
  ib_uverbs_get_context body{};
  body.response = address_of(response);
  return write_command(fd, IB_USER_VERBS_CMD_GET_CONTEXT, body, sizeof response);
}

ssize_t create_channel(int fd, int& channel) {
  const ib_uverbs_create_comp_channel body{address_of(&channel)};
  return write_command(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, body, sizeof channel);
}

ssize_t create_cq(int fd, int channel, std::uint32_t& seen_channel) {
  ib_uverbs_create_cq_resp response;
  std::memset(&response, 0, sizeof response);
  ib_uverbs_create_cq body{};
  body.response = address_of(&response);
  body.cqe = 16;
  body.comp_channel = channel;
  const ssize_t written = write_command(fd, IB_USER_VERBS_CMD_CREATE_CQ, body, sizeof response);
  seen_channel = response.cq_handle;
  return written;
}

ssize_t create_cq_ex(int fd, int channel, std::uint32_t& seen_channel) {
  ib_uverbs_ex_create_cq_resp response;
  std::memset(&response, 0, sizeof response);
  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_ex_cmd_hdr ex;
    ib_uverbs_ex_create_cq body;
  } command{};
  command.header = {IB_USER_VERBS_EX_CMD_CREATE_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                    sizeof command.body / 8, sizeof response / 8};
  command.ex.response = address_of(&response);
  command.body.cqe = 16;
  command.body.comp_channel = channel;
  const ssize_t written = write(fd, &command, sizeof command);
  seen_channel = response.base.cq_handle;
  return written;
}

ssize_t post_send(int fd, std::uint32_t qp_handle) {
  ib_uverbs_post_send body;
  std::memset(&body, 0, sizeof body);
  body.qp_handle = qp_handle;
  return write_command(fd, IB_USER_VERBS_CMD_POST_SEND, body, 4);
}

ssize_t req_notify(int fd, std::uint32_t cq_handle, bool is_solicited_only) {
  const ib_uverbs_req_notify_cq body{cq_handle, is_solicited_only ? 1u : 0u};
  return write_command(fd, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, body, 0);
}

ssize_t dealloc_pd(int fd) {
  const ib_uverbs_dealloc_pd body{1};
  return write_command(fd, IB_USER_VERBS_CMD_DEALLOC_PD, body, 0);
}

void expect_alive(int fd) { EXPECT_ERRNO(dealloc_pd(fd), ENXIO); }

void expect_success(int pid) {
  EXPECT(pid > 0);
  int status = 0;
  EXPECT(waitpid(pid, &status, 0) == pid);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace rocemu::probe

int main(int argc, char** argv) {
  using namespace rocemu::probe;
  if (argc < 2) return 2;
  self_path = argv[0];
  for (const auto cases :
       {device_cases(), command_cases(), descriptor_cases(), process_cases(), library_cases()}) {
    for (const Case& one : cases) {
      if (std::strcmp(one.name, argv[1]) != 0) continue;
      one.run();
      return 0;
    }
  }
  std::fprintf(stderr, "no case %s\n", argv[1]);
  return 2;
}
