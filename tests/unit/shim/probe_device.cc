// How the emulated files look: devices, their directory, sysfs.
#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "tests/unit/shim/probe.h"

// The entry points of programs linked before glibc 2.33.
extern "C" int __xstat(int, const char*, struct stat*);
extern "C" int __fxstat(int, int, struct stat*);

namespace rocemu::probe {
namespace {

constexpr char kState[] = "/sys/class/infiniband/roce0/ports/1/state";

void expect_device(const struct stat& status, unsigned index) {
  EXPECT(S_ISCHR(status.st_mode));
  EXPECT((status.st_mode & 0777) == 0666);
  EXPECT(major(status.st_rdev) == 231);
  EXPECT(minor(status.st_rdev) == 192 + index);
}

void device_looks_like_a_character_device() {
  struct stat status {};
  EXPECT(stat(kDevice, &status) == 0);
  expect_device(status, 0);
  EXPECT(lstat("/dev/infiniband/uverbs1", &status) == 0);
  expect_device(status, 1);
  EXPECT(fstatat(AT_FDCWD, "//dev/./infiniband//uverbs1", &status, 0) == 0);
  expect_device(status, 1);
  EXPECT(__xstat(1, kDevice, &status) == 0);
  expect_device(status, 0);
  struct statx wide {};
  EXPECT(statx(AT_FDCWD, kDevice, 0, STATX_BASIC_STATS, &wide) == 0);
  EXPECT(S_ISCHR(wide.stx_mode) && wide.stx_rdev_major == 231 && wide.stx_rdev_minor == 192);
  EXPECT(access(kDevice, R_OK | W_OK) == 0);
  EXPECT(faccessat(AT_FDCWD, kDevice, F_OK, 0) == 0);
  EXPECT_ERRNO(access(kDevice, X_OK), EACCES);
}

void open_descriptor_looks_like_the_device() {
  const int fd = open_device();
  struct stat status {};
  EXPECT(fstat(fd, &status) == 0);
  expect_device(status, 0);
  EXPECT(fstatat(fd, "", &status, AT_EMPTY_PATH) == 0);
  expect_device(status, 0);
  EXPECT(__fxstat(1, fd, &status) == 0);
  expect_device(status, 0);
  struct statx wide {};
  EXPECT(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &wide) == 0);
  EXPECT(S_ISCHR(wide.stx_mode) && wide.stx_rdev_minor == 192);
  // RDMA_VERBS_IOCTL: its absence makes libibverbs use write() for every command.
  char attributes[64] = {};
  EXPECT_ERRNO(ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 0x1b, 1, 24), attributes), ENOTTY);
  EXPECT(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  EXPECT(close(fd) == 0);

  const int inherited = open(kDevice, O_RDWR);
  EXPECT(inherited >= 0 && fcntl(inherited, F_GETFD) == 0);
  EXPECT(close(inherited) == 0);
}

void other_devices_do_not_exist() {
  struct stat status {};
  for (const char* path :
       {"/dev/infiniband/uverbs9", "/dev/infiniband/uverbs", "/dev/infiniband/uverbs00",
        "/dev/infiniband/uverbs0x", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad0",
        "/sys/class/infiniband/roce7", "/sys/class/infiniband_mad/abi_version"}) {
    EXPECT_ERRNO(open(path, O_RDWR), ENOENT);
    EXPECT_ERRNO(stat(path, &status), ENOENT);
    EXPECT_ERRNO(access(path, F_OK), ENOENT);
  }
  EXPECT_ERRNO(open("/dev/infiniband/uverbs1", O_RDWR), EACCES);  // the fake daemon's decision
  EXPECT_ERRNO(open(kDevice, O_RDONLY | O_DIRECTORY), ENOTDIR);
  EXPECT(opendir(kDevice) == nullptr && errno == ENOTDIR);
}

void ordinary_paths_are_left_alone() {
  struct stat status {};
  EXPECT(stat("/dev/null", &status) == 0 && major(status.st_rdev) == 1);
  EXPECT(stat("/sys", &status) == 0 && S_ISDIR(status.st_mode));
  const int fd = open("/dev/null", O_WRONLY);
  EXPECT(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
  EXPECT_ERRNO(open("/dev/infinibandx", O_RDONLY), ENOENT);
  EXPECT_ERRNO(open("/sys/class/infiniband_other", O_RDONLY), ENOENT);
  const char* volatile nowhere = nullptr;
  EXPECT_ERRNO(open(nowhere, O_RDONLY), EFAULT);
  EXPECT_ERRNO(stat("", &status), ENOENT);
  char resolved[PATH_MAX];
  EXPECT(realpath("/dev/../dev/null", resolved) != nullptr);
  EXPECT(std::strcmp(resolved, "/dev/null") == 0);
}

bool lists(const char* directory, const char* wanted) {
  DIR* open_directory = opendir(directory);
  EXPECT(open_directory != nullptr);
  bool found = false;
  while (const dirent* entry = readdir(open_directory)) {
    found = found || std::strcmp(entry->d_name, wanted) == 0;
  }
  closedir(open_directory);
  return found;
}

void directories_list_devices() {
  EXPECT(lists("/dev/infiniband", "uverbs0"));
  EXPECT(lists("/dev/infiniband/", "uverbs1"));
  EXPECT(lists("/sys/class/infiniband", "roce1"));
  EXPECT(lists("/sys/class/infiniband_verbs", "uverbs1"));
  dirent** names = nullptr;
  EXPECT(scandir("/sys/class/infiniband", &names, nullptr, alphasort) == 4);
  EXPECT(std::strcmp(names[2]->d_name, "roce0") == 0);
  EXPECT_ERRNO(chdir("/sys/class/infiniband/none"), ENOENT);
  EXPECT(chdir("/sys/class/infiniband/roce0") == 0 && lists(".", "ports") && chdir("/") == 0);
  const int fd = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
  DIR* from_fd = fdopendir(fd);
  EXPECT(from_fd != nullptr && readdir(from_fd) != nullptr && closedir(from_fd) == 0);
}

void expect_text(int fd, const char* text) {
  char buffer[64] = {};
  EXPECT(fd >= 0);
  EXPECT(read(fd, buffer, sizeof buffer - 1) == static_cast<ssize_t>(std::strlen(text)));
  EXPECT(std::strcmp(buffer, text) == 0);
  EXPECT(close(fd) == 0);
}

void sysfs_is_redirected() {
  expect_text(open(kState, O_RDONLY), "4: ACTIVE\n");
  expect_text(openat(AT_FDCWD, kState, O_RDONLY), "4: ACTIVE\n");
  const int directory = open("/sys/class/infiniband/roce0", O_RDONLY | O_DIRECTORY);
  EXPECT(directory >= 0);
  expect_text(openat(directory, "ports/1/state", O_RDONLY), "4: ACTIVE\n");
  EXPECT(close(directory) == 0);
  FILE* file = fopen(kState, "r");
  char line[32] = {};
  EXPECT(file != nullptr && fgets(line, sizeof line, file) != nullptr && fclose(file) == 0);
  EXPECT(std::strcmp(line, "4: ACTIVE\n") == 0);

  char target[64] = {};
  EXPECT(readlink("/sys/class/infiniband/roce0/a_link", target, sizeof target) == 13);
  EXPECT(std::strcmp(target, "ports/1/state") == 0);
  char* real = realpath("/sys/class/infiniband/roce0/a_link", nullptr);
  EXPECT(real != nullptr && std::strcmp(real, kState) == 0);
  std::free(real);
  real = realpath("/dev//infiniband/uverbs0", nullptr);
  EXPECT(real != nullptr && std::strcmp(real, kDevice) == 0);
  std::free(real);
  EXPECT_ERRNO(readlink(kDevice, target, sizeof target), EINVAL);
  EXPECT_ERRNO(open("/sys/class/infiniband/new", O_CREAT | O_WRONLY, 0600), ENOENT);
}

void counters_are_live() {
  const long first = counter("sysfs_reads");
  EXPECT(counter("sysfs_reads") == first + 1);
  const int directory = open("/sys/class/infiniband/roce0", O_RDONLY | O_DIRECTORY);
  char text[32] = {};
  const int relative = openat(directory, "ports/1/counters/sysfs_reads", O_RDONLY);
  EXPECT(read(relative, text, sizeof text) > 0 && std::atol(text) == first + 2);
  EXPECT(close(relative) == 0 && close(directory) == 0);
  // Below the working directory, too: `cat *` of who went there.
  EXPECT(chdir("/sys/class/infiniband/roce0/ports/1/counters") == 0);
  const long before = counter("sysfs_reads");
  char shown[32] = {};
  const int here = open("sysfs_reads", O_RDONLY);
  EXPECT(here >= 0 && read(here, shown, sizeof shown - 1) > 0 && close(here) == 0);
  EXPECT(std::strtol(shown, nullptr, 10) == before + 1);
  FILE* stream = fopen("sysfs_reads", "re");
  EXPECT(stream != nullptr && std::fgets(shown, sizeof shown, stream) != nullptr);
  EXPECT(std::fclose(stream) == 0 && std::strtol(shown, nullptr, 10) == before + 2);
  EXPECT(chdir("/") == 0);
  EXPECT_ERRNO(open("sysfs_reads", O_RDONLY), ENOENT);
  FILE* file = fopen("/sys/class/infiniband/roce0/ports/1/hw_counters/sysfs_reads", "re");
  EXPECT(file != nullptr && fgets(text, sizeof text, file) != nullptr && fclose(file) == 0);
  EXPECT(std::atol(text) == first + 6);
  EXPECT_ERRNO(open("/sys/class/infiniband/roce0/ports/1/counters/missing", O_RDONLY), ENOENT);
  const int fds = count_fds();
  (void)counter("sysfs_reads");
  EXPECT(count_fds() == fds);
}

void rdma_netlink_is_refused() {
  EXPECT_ERRNO(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), EPROTONOSUPPORT);
  const int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  EXPECT(fd >= 0 && close(fd) == 0);
}

void nothing_is_there_without_a_daemon() {
  struct stat status {};
  EXPECT_ERRNO(open(kDevice, O_RDWR), ENOENT);
  EXPECT_ERRNO(stat("/sys/class/infiniband", &status), ENOENT);
  EXPECT(opendir("/sys/class/infiniband_verbs") == nullptr && errno == ENOENT);
  EXPECT(fopen(kState, "r") == nullptr && errno == ENOENT);
}

constexpr Case kCases[] = {
    {"device_looks_like_a_character_device", device_looks_like_a_character_device},
    {"open_descriptor_looks_like_the_device", open_descriptor_looks_like_the_device},
    {"other_devices_do_not_exist", other_devices_do_not_exist},
    {"ordinary_paths_are_left_alone", ordinary_paths_are_left_alone},
    {"directories_list_devices", directories_list_devices},
    {"sysfs_is_redirected", sysfs_is_redirected},
    {"counters_are_live", counters_are_live},
    {"rdma_netlink_is_refused", rdma_netlink_is_refused},
    {"nothing_is_there_without_a_daemon", nothing_is_there_without_a_daemon},
};

}  // namespace

std::span<const Case> device_cases() { return kCases; }

}  // namespace rocemu::probe
