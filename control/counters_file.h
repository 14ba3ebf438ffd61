// The counters file of the run-time directory (include/rocemu/abi/counters.h): made at start,
// mapped for the daemon's life, read by any tool. The blocks in it are the engines' and the
// worker's live counters, so that nothing is ever copied into it. Control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rocemu/abi/counters.h"
#include "rocemu/base/result.h"

namespace rocemu::control {

class CountersFile {
 public:
  /// Makes `path` anew for these devices, in this order. EACCES, ENOSPC and the like.
  static Result<CountersFile> make(const std::string& path,
                                   const std::vector<std::string>& device_names,
                                   std::uint32_t shard_count);
  CountersFile(CountersFile&& other) noexcept;
  CountersFile& operator=(CountersFile&& other) noexcept;
  ~CountersFile();

  CountersHeader& header() { return *header_; }
  CounterBlock& block(std::size_t device, std::uint32_t shard);
  WorkerBlock& worker(std::uint32_t shard) { return header_->workers[shard]; }
  /// Sum over the shards, `index` as in kCounterInfo.
  std::uint64_t total(std::size_t device, std::size_t index);
  /// Readers take the file as complete from now on.
  void publish();

 private:
  CountersFile() = default;

  CountersHeader* header_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rocemu::control
