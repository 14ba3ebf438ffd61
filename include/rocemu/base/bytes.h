// Network bytes. Every multi-byte field of the wire is read and written here, big-endian, at stated
// offsets; buffers are never cast to structs. `ByteReader` checks bounds once a call and remembers
// failure, so a parser may read ahead and test once.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace rocemu {

namespace detail {
template <std::unsigned_integral T>
constexpr T byte_swap(T v) {
  if constexpr (sizeof(T) == 1) {
    return v;
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(__builtin_bswap16(v));
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(v);
  } else {
    return __builtin_bswap64(v);
  }
}
}  // namespace detail

/// Reads a big-endian T at `p`, which need not be aligned.
template <std::unsigned_integral T>
inline T load_be(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return std::endian::native == std::endian::little ? detail::byte_swap(v) : v;
}

/// Writes a big-endian T at `p`, which need not be aligned.
template <std::unsigned_integral T>
inline void store_be(std::byte* p, T v) {
  if constexpr (std::endian::native == std::endian::little) v = detail::byte_swap(v);
  std::memcpy(p, &v, sizeof v);
}

/// Reads the low 24 bits of three big-endian bytes at `p`.
inline std::uint32_t load_be24(const std::byte* p) {
  return std::to_integer<std::uint32_t>(p[0]) << 16 | std::to_integer<std::uint32_t>(p[1]) << 8 |
         std::to_integer<std::uint32_t>(p[2]);
}

/// Writes the low 24 bits of `v` as three big-endian bytes at `p`.
inline void store_be24(std::byte* p, std::uint32_t v) {
  p[0] = static_cast<std::byte>(v >> 16);
  p[1] = static_cast<std::byte>(v >> 8);
  p[2] = static_cast<std::byte>(v);
}

/// Reads a host-order T at `p`, which need not be aligned. For rings and command structs, not for
/// the wire.
template <typename T>
requires std::is_trivially_copyable_v<T>
inline T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Writes a host-order T at `p`, which need not be aligned.
template <typename T>
requires std::is_trivially_copyable_v<T>
inline void store(std::byte* p, const T& v) { std::memcpy(p, &v, sizeof v); }

/// Cursor over received bytes. After the first read past the end every read returns zero and ok()
/// is false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

  template <std::unsigned_integral T>
  T be() {
    const std::byte* p = take(sizeof(T));
    return p != nullptr ? load_be<T>(p) : T{0};
  }
  std::uint32_t be24() {
    const std::byte* p = take(3);
    return p != nullptr ? load_be24(p) : 0;
  }
  /// The next `n` bytes; empty when there are not so many.
  std::span<const std::byte> bytes(std::size_t n) {
    const std::byte* p = take(n);
    return p != nullptr ? std::span(p, n) : std::span<const std::byte>{};
  }
  void skip(std::size_t n) { (void)take(n); }

 private:
  const std::byte* take(std::size_t n) {
    if (!ok_ || n > bytes_.size() - offset_) {
      ok_ = false;
      return nullptr;
    }
    const std::byte* p = bytes_.data() + offset_;
    offset_ += n;
    return p;
  }

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace rocemu
