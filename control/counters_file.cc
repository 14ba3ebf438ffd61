#include "control/counters_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "control/unique_fd.h"

namespace rocemu::control {

Result<CountersFile> CountersFile::make(const std::string& path,
                                        const std::vector<std::string>& device_names,
                                        std::uint32_t shard_count) {
  // A tool may still map the file of an earlier daemon: that one stays as it is.
  (void)::unlink(path.c_str());
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.is_open()) return Error{errno, path + ": " + std::strerror(errno)};
  const std::size_t blocks = device_names.size() * shard_count;
  CountersFile out;
  out.bytes_ = sizeof(CountersHeader) + blocks * sizeof(CounterBlock);
  // Room is taken now: a full file system must not become a SIGBUS in the worker.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(out.bytes_));
      error != 0) {
    return Error{error, path + ": " + std::strerror(error)};
  }
  void* base = ::mmap(nullptr, out.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Error{errno, path + ": " + std::strerror(errno)};
  out.header_ = new (base) CountersHeader;
  CountersHeader& header = *out.header_;
  header.version = kCountersVersion;
  header.counter_count = kCounterCount;
  header.device_count = static_cast<std::uint32_t>(device_names.size());
  header.shard_count = shard_count;
  header.block_bytes = sizeof(CounterBlock);
  header.blocks_offset = sizeof(CountersHeader);
  header.daemon_pid = ::getpid();
  header.started_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  for (std::size_t i = 0; i < device_names.size(); ++i) {
    auto& name = header.device_names[i];
    device_names[i].copy(name, std::min(device_names[i].size(), sizeof name - 1));
  }
  auto* first = reinterpret_cast<std::byte*>(base) + header.blocks_offset;
  for (std::size_t i = 0; i < blocks; ++i) new (first + i * sizeof(CounterBlock)) CounterBlock;
  return out;
}

CountersFile::CountersFile(CountersFile&& other) noexcept
    : header_(std::exchange(other.header_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CountersFile& CountersFile::operator=(CountersFile&& other) noexcept {
  std::swap(header_, other.header_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CountersFile::~CountersFile() {
  if (header_ != nullptr) ::munmap(header_, bytes_);
}

CounterBlock& CountersFile::block(std::size_t device, std::uint32_t shard) {
  auto* blocks = reinterpret_cast<CounterBlock*>(reinterpret_cast<std::byte*>(header_) +
                                                 header_->blocks_offset);
  return blocks[device * header_->shard_count + shard];
}

std::uint64_t CountersFile::total(std::size_t device, std::size_t index) {
  std::uint64_t sum = 0;
  for (std::uint32_t shard = 0; shard < header_->shard_count; ++shard) {
    sum += block(device, shard).get_at(index);
  }
  return sum;
}

void CountersFile::publish() {
  __atomic_store_n(&header_->magic, kCountersMagic, __ATOMIC_RELEASE);
}

}  // namespace rocemu::control
