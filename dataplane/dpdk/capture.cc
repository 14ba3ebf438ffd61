// pcapng (draft-ietf-opsawg-pcapng): one section, one interface with times in nanoseconds, an
// enhanced packet block a frame, at the end the interface's statistics. All in host byte order, as
// the section header tells.
#include "dataplane/dpdk/capture.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace rocemu::dpdk {
namespace {

constexpr std::uint32_t kSectionBlock = 0x0a0d'0d0a;
constexpr std::uint32_t kInterfaceBlock = 1;
constexpr std::uint32_t kStatisticsBlock = 5;
constexpr std::uint32_t kPacketBlock = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b'3c4d;
constexpr std::uint32_t kLinkEthernet = 1;
constexpr std::uint32_t kPacketFixedBytes = 28;  // block header, interface, time, two lengths
constexpr std::uint32_t kPacketTailBytes = 16;   // epb_flags, end of options, block length
constexpr int kWritePeriodMs = 10;

constexpr std::uint32_t pad4(std::uint32_t n) { return (n + 3) & ~3u; }

std::int64_t nanoseconds_of(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Builds the few blocks that are not packets.
class BlockBuilder {
 public:
  template <typename T>
  void put(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void put_option(std::uint16_t code, std::span<const std::byte> value) {
    put(code);
    put(static_cast<std::uint16_t>(value.size()));
    append(value);
    bytes_.resize(pad4(static_cast<std::uint32_t>(bytes_.size())));
  }
  std::vector<std::byte> finish(std::uint32_t type) {
    std::vector<std::byte> body;
    body.swap(bytes_);
    const auto length = static_cast<std::uint32_t>(body.size()) + 12;
    put(type);
    put(length);
    append(body);
    put(length);
    return std::move(bytes_);
  }

 private:
  void append(std::span<const std::byte> value) {
    if (value.empty()) return;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + value.size());
    std::memcpy(bytes_.data() + at, value.data(), value.size());
  }

  std::vector<std::byte> bytes_;
};

std::vector<std::byte> section_block() {
  BlockBuilder b;
  b.put(kByteOrderMagic);
  b.put(std::uint16_t{1});
  b.put(std::uint16_t{0});
  b.put(std::int64_t{-1});
  return b.finish(kSectionBlock);
}

std::vector<std::byte> interface_block(const CaptureOptions& options) {
  constexpr std::uint16_t kName = 2;
  constexpr std::uint16_t kTimeResolution = 9;
  BlockBuilder b;
  b.put(kLinkEthernet);
  b.put(options.snap_bytes);
  b.put_option(kName, std::as_bytes(std::span(options.interface_name)));
  constexpr std::byte kNanoseconds{9};
  b.put_option(kTimeResolution, {&kNanoseconds, 1});
  b.put_option(0, {});
  return b.finish(kInterfaceBlock);
}

std::vector<std::byte> statistics_block(const CaptureTotals& totals) {
  constexpr std::uint16_t kReceived = 4;
  constexpr std::uint16_t kDropped = 5;
  const auto now = static_cast<std::uint64_t>(nanoseconds_of(CLOCK_REALTIME));
  const std::uint64_t seen = totals.recorded_frames + totals.dropped_frames;
  BlockBuilder b;
  b.put(std::uint32_t{0});
  b.put(static_cast<std::uint32_t>(now >> 32));
  b.put(static_cast<std::uint32_t>(now));
  b.put_option(kReceived, std::as_bytes(std::span(&seen, 1)));
  b.put_option(kDropped, std::as_bytes(std::span(&totals.dropped_frames, 1)));
  b.put_option(0, {});
  return b.finish(kStatisticsBlock);
}

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

struct Capture::Impl {
  Impl(int file, const CaptureOptions& capture_options)
      : fd(file),
        options(capture_options),
        ring(capture_options.buffer_bytes),
        wall_offset_ns(nanoseconds_of(CLOCK_REALTIME) - nanoseconds_of(CLOCK_MONOTONIC)),
        stop_fd(::eventfd(0, EFD_CLOEXEC)) {}
  ~Impl() {
    ::close(fd);
    ::close(stop_fd);
  }

  void put(const void* bytes, std::size_t count) {
    const std::size_t at = position & (ring.size() - 1);
    const std::size_t first = std::min(count, ring.size() - at);
    std::memcpy(ring.data() + at, bytes, first);
    std::memcpy(ring.data(), static_cast<const std::byte*>(bytes) + first, count - first);
    position += count;
  }

  void write_out();
  void write_loop();

  const int fd;
  const CaptureOptions options;
  std::vector<std::byte> ring;
  const std::int64_t wall_offset_ns;
  const int stop_fd;
  std::size_t position = 0;                        ///< The worker's: where it encodes.
  alignas(64) std::atomic<std::size_t> filled{0};  ///< Bytes encoded, ever.
  alignas(64) std::atomic<std::size_t> written{0};
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<int> error{0};
  std::thread writer;
};

void Capture::Impl::write_out() {
  const std::size_t end = filled.load(std::memory_order_acquire);  // pairs with record()
  std::size_t begin = written.load(std::memory_order_relaxed);     // own
  while (begin != end) {
    const std::size_t at = begin & (ring.size() - 1);
    const std::size_t piece = std::min(end - begin, ring.size() - at);
    if (error.load(std::memory_order_relaxed) == 0) {
      error.store(write_all(fd, std::span(ring).subspan(at, piece)), std::memory_order_relaxed);
    }
    begin += piece;
    written.store(begin, std::memory_order_release);  // pairs with record()
  }
}

void Capture::Impl::write_loop() {
  pollfd stop{.fd = stop_fd, .events = POLLIN, .revents = 0};
  while (::poll(&stop, 1, kWritePeriodMs) <= 0) write_out();
  write_out();
}

Capture::Capture(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Capture>> Capture::make(int fd, const CaptureOptions& options) {
  auto impl = std::make_unique<Impl>(fd, options);
  if (!std::has_single_bit(options.buffer_bytes) || options.buffer_bytes < (128 << 10)) {
    return Error{EINVAL, "a capture's buffer is a power of two of bytes, 128 KiB at least"};
  }
  if (options.snap_bytes < 64 || options.snap_bytes > 65535) {
    return Error{EINVAL, "a capture keeps 64 to 65535 bytes of a frame"};
  }
  if (impl->stop_fd < 0) return Error{errno, "no event descriptor for the capture"};
  for (const auto& block : {section_block(), interface_block(options)}) {
    if (const int error = write_all(fd, block); error != 0) {
      return Error{error, std::string("the capture file cannot be written: ") + strerror(error)};
    }
  }
  impl->writer = std::thread([raw = impl.get()] { raw->write_loop(); });
  return std::unique_ptr<Capture>(new Capture(std::move(impl)));
}

Capture::~Capture() {
  const std::uint64_t one = 1;
  (void)!::write(impl_->stop_fd, &one, sizeof one);
  impl_->writer.join();
  if (impl_->error.load(std::memory_order_relaxed) == 0) {
    (void)write_all(impl_->fd, statistics_block(totals()));
  }
}

void Capture::record(Time now, CaptureDirection direction, std::span<const std::byte> frame) {
  Impl& c = *impl_;
  const auto length = static_cast<std::uint32_t>(frame.size());
  const std::uint32_t kept = std::min(length, c.options.snap_bytes);
  const std::uint32_t block = kPacketFixedBytes + pad4(kept) + kPacketTailBytes;
  // acquire: pairs with the writer's release, after it read what is overwritten here.
  const std::size_t used = c.position - c.written.load(std::memory_order_acquire);
  if (block > c.ring.size() - used || c.error.load(std::memory_order_relaxed) != 0) {
    c.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto wall = static_cast<std::uint64_t>(now.ns + c.wall_offset_ns);
  const std::uint32_t head[] = {
      kPacketBlock,
      block,
      0,
      static_cast<std::uint32_t>(wall >> 32),
      static_cast<std::uint32_t>(wall),
      kept,
      length,
  };
  static_assert(sizeof head == kPacketFixedBytes);
  constexpr std::uint16_t kFlags = 2;
  const std::uint32_t tail[] = {
      std::bit_cast<std::uint32_t>(std::array<std::uint16_t, 2>{kFlags, 4}),
      static_cast<std::uint32_t>(direction),
      0,
      block,
  };
  static_assert(sizeof tail == kPacketTailBytes);
  constexpr std::uint32_t kZero = 0;
  c.put(head, sizeof head);
  c.put(frame.data(), kept);
  c.put(&kZero, pad4(kept) - kept);
  c.put(tail, sizeof tail);
  c.recorded.fetch_add(1, std::memory_order_relaxed);
  c.filled.store(c.position, std::memory_order_release);  // pairs with write_out()
}

CaptureTotals Capture::totals() const {
  return {.recorded_frames = impl_->recorded.load(std::memory_order_relaxed),
          .dropped_frames = impl_->dropped.load(std::memory_order_relaxed),
          .error = impl_->error.load(std::memory_order_relaxed)};
}

}  // namespace rocemu::dpdk
