// Clients' address spaces. A space is bound to one program image: /proc/PID/mem is opened once, at
// attach, and dies with the image at execve or exit, so that neither execve nor a reused pid can
// turn an access into one of another program's memory. That file ignores page protections, so
// rights are checked against the mappings when a range is registered (probe_range), as a NIC pins
// pages then. Control thread: open, resume, close, probe_range. Workers: file_of. suspend and close
// are called from a worker's job, so that no access is in flight when they return.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rocemu/base/ids.h"
#include "rocemu/base/result.h"

namespace rocemu::memory {

enum class RangeAccess : std::uint8_t { kRead, kReadWrite };

/// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t file_offset = 0;
  bool is_readable = false;
  bool is_writable = false;
  bool is_shared = false;
  std::string path;
};

class AddressSpaces {
 public:
  /// `capacity`: spaces at most.
  explicit AddressSpaces(std::uint32_t capacity);
  ~AddressSpaces();
  AddressSpaces(const AddressSpaces&) = delete;
  AddressSpaces& operator=(const AddressSpaces&) = delete;

  /// Binds a space to the image that the process runs now. EPERM when the daemon may not look into
  /// it, ESRCH when it is gone.
  Result<SpaceId> open(pid_t pid);
  /// Accesses fault from now on (the process is about to execve).
  void suspend(SpaceId space);
  /// The execve failed: the image is the old one.
  void resume(SpaceId space);
  void close(SpaceId space);

  /// EFAULT unless all of [va, va + length) is mapped with the rights.
  Result<void> probe_range(SpaceId space, std::uint64_t va, std::uint64_t length,
                           RangeAccess access) const;
  /// The mappings that overlap [va, va + length), in order.
  std::vector<Mapping> mappings(SpaceId space, std::uint64_t va, std::uint64_t length) const;
  pid_t pid_of(SpaceId space) const;

  /// The file to read and write the space at, or -1 when accesses must fault.
  int file_of(SpaceId space) const {
    return space.value < spaces_.size() && !spaces_[space.value].is_suspended
               ? spaces_[space.value].memory_fd
               : -1;
  }

 private:
  struct Space {
    int memory_fd = -1;
    int maps_fd = -1;
    pid_t pid = 0;
    bool is_suspended = false;
  };
  std::vector<Space> spaces_;
  std::vector<std::uint32_t> free_;
};

}  // namespace rocemu::memory
