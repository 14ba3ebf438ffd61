// CRC by carry-less multiplication on 128-bit registers (PCLMULQDQ, SSE4.1): four accumulators fold
// 64 bytes a step, then one, then the last 16 bytes go through the tables. Method: Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ".
#include <immintrin.h>

#include "dataplane/wire/icrc_kernels.h"

#define ROCEMU_TARGET __attribute__((target("pclmul,sse4.1")))

namespace rocemu::wire {
namespace {

using crc32::Mode;

constexpr crc32::FoldPair kBy512 = crc32::fold_by(512);
constexpr crc32::FoldPair kBy128 = crc32::fold_by(128);

ROCEMU_TARGET inline __m128i pair(crc32::FoldPair k) {
  return _mm_set_epi64x(static_cast<long long>(k.high), static_cast<long long>(k.low));
}

ROCEMU_TARGET inline __m128i fold(__m128i acc, __m128i k, __m128i data) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(acc, k, 0x00), _mm_clmulepi64_si128(acc, k, 0x11)), data);
}

template <Mode mode>
ROCEMU_TARGET inline __m128i take(std::byte* to, const std::byte* from, std::size_t i) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
  if constexpr (mode == Mode::kCopy) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), v);
  return v;
}

template <Mode mode>
ROCEMU_TARGET std::uint32_t run(std::uint32_t state, std::byte* to, const std::byte* from,
                                std::size_t n) {
  if (n < 32) return crc32::run_scalar<mode>(state, to, from, n);
  std::size_t i = 0;
  __m128i acc = _mm_xor_si128(take<mode>(to, from, 0), _mm_cvtsi32_si128(static_cast<int>(state)));
  i = 16;
  if (n >= 128) {
    const __m128i k = pair(kBy512);
    __m128i b = take<mode>(to, from, 16);
    __m128i c = take<mode>(to, from, 32);
    __m128i d = take<mode>(to, from, 48);
    for (i = 64; i + 64 <= n; i += 64) {
      acc = fold(acc, k, take<mode>(to, from, i));
      b = fold(b, k, take<mode>(to, from, i + 16));
      c = fold(c, k, take<mode>(to, from, i + 32));
      d = fold(d, k, take<mode>(to, from, i + 48));
    }
    const __m128i k1 = pair(kBy128);
    acc = fold(fold(fold(acc, k1, b), k1, c), k1, d);
  }
  const __m128i k1 = pair(kBy128);
  for (; i + 16 <= n; i += 16) acc = fold(acc, k1, take<mode>(to, from, i));
  const std::uint32_t folded =
      crc32::step8(crc32::step8(0, static_cast<std::uint64_t>(_mm_extract_epi64(acc, 0))),
                   static_cast<std::uint64_t>(_mm_extract_epi64(acc, 1)));
  return crc32::run_scalar<mode>(folded, mode == Mode::kCopy ? to + i : nullptr, from + i, n - i);
}

std::uint32_t update(std::uint32_t state, const std::byte* p, std::size_t n) {
  return run<Mode::kUpdate>(state, nullptr, p, n);
}

}  // namespace

constinit const IcrcKernel kPclmulKernel = {
    .name = "pclmul",
    .is_supported =
        [] { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); },
    .update = update,
    .copy = crc32::copy_tail_last<run<Mode::kCopy>>,
};

}  // namespace rocemu::wire
