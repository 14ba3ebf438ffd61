// A capture of one device's frames in pcapng, both directions, each with its direction flag. The
// worker encodes into a ring of bytes; a thread of the capture's own writes them out, so that a
// slow disk costs frames of the capture (counted in the file) and never holds up the data plane.
// Made and ended by control; record() is the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rocemu/base/result.h"
#include "rocemu/base/time.h"

namespace rocemu::dpdk {

/// Values are those of pcapng's epb_flags.
enum class CaptureDirection : std::uint8_t { kInbound = 1, kOutbound = 2 };

struct CaptureOptions {
  std::string interface_name;
  std::uint32_t snap_bytes = 65535;     ///< Of each frame at most; 64 ... 65535.
  std::size_t buffer_bytes = 16 << 20;  ///< A power of two, 128 KiB at least.
};

struct CaptureTotals {
  std::uint64_t recorded_frames = 0;
  std::uint64_t dropped_frames = 0;  ///< The disk did not keep up, or refused.
  int error = 0;                     ///< errno of the write that failed; 0: none.
};

class Capture {
 public:
  /// Writes the file's head to `fd`, which it then owns, and starts the writer. EINVAL, EIO.
  static Result<std::unique_ptr<Capture>> make(int fd, const CaptureOptions& options);
  /// Writes all that is left, and the totals.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// The worker's thread. `now` as the worker's clock has it (CLOCK_MONOTONIC).
  void record(Time now, CaptureDirection direction, std::span<const std::byte> frame);
  /// Any thread.
  CaptureTotals totals() const;

 private:
  struct Impl;
  explicit Capture(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rocemu::dpdk
