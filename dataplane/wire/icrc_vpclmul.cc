// CRC by carry-less multiplication on 512-bit registers (VPCLMULQDQ, AVX-512): four accumulators
// fold 256 bytes a step. Inputs below that size, and what is left, go to the 128-bit kernel, which
// every CPU with this one has too.
#include <immintrin.h>

#include "dataplane/wire/icrc_kernels.h"

#define ROCEMU_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.1")))

namespace rocemu::wire {
namespace {

using crc32::Mode;

constexpr crc32::FoldPair kBy2048 = crc32::fold_by(2048);
constexpr crc32::FoldPair kBy512 = crc32::fold_by(512);
constexpr crc32::FoldPair kBy384 = crc32::fold_by(384);
constexpr crc32::FoldPair kBy256 = crc32::fold_by(256);
constexpr crc32::FoldPair kBy128 = crc32::fold_by(128);

ROCEMU_TARGET inline __m128i pair(crc32::FoldPair k) {
  return _mm_set_epi64x(static_cast<long long>(k.high), static_cast<long long>(k.low));
}

// The pair in all four lanes. The zero-masked form: GCC 12 warns about the plain one's undefined
// source.
ROCEMU_TARGET inline __m512i spread(crc32::FoldPair k) {
  return _mm512_maskz_broadcast_i32x4(0xffff, pair(k));
}

ROCEMU_TARGET inline __m512i fold(__m512i acc, __m512i k, __m512i data) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(acc, k, 0x00),
                                   _mm512_clmulepi64_epi128(acc, k, 0x11), data, 0x96);
}

ROCEMU_TARGET inline __m128i shift(__m128i acc, crc32::FoldPair k) {
  return _mm_xor_si128(_mm_clmulepi64_si128(acc, pair(k), 0x00),
                       _mm_clmulepi64_si128(acc, pair(k), 0x11));
}

template <Mode mode>
ROCEMU_TARGET inline __m512i take(std::byte* to, const std::byte* from, std::size_t i) {
  const __m512i v = _mm512_loadu_si512(from + i);
  if constexpr (mode == Mode::kCopy) _mm512_storeu_si512(to + i, v);
  return v;
}

template <Mode mode>
std::uint32_t rest(std::uint32_t state, std::byte* to, const std::byte* from, std::size_t n) {
  if constexpr (mode == Mode::kCopy) return kPclmulKernel.copy(state, to, from, n);
  return kPclmulKernel.update(state, from, n);
}

template <Mode mode>
ROCEMU_TARGET std::uint32_t run(std::uint32_t state, std::byte* to, const std::byte* from,
                                std::size_t n) {
  if (n < 256) return rest<mode>(state, to, from, n);
  const __m512i seed = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
  __m512i a = _mm512_xor_si512(take<mode>(to, from, 0), seed);
  __m512i b = take<mode>(to, from, 64);
  __m512i c = take<mode>(to, from, 128);
  __m512i d = take<mode>(to, from, 192);
  const __m512i k2048 = spread(kBy2048);
  std::size_t i = 256;
  for (; i + 256 <= n; i += 256) {
    a = fold(a, k2048, take<mode>(to, from, i));
    b = fold(b, k2048, take<mode>(to, from, i + 64));
    c = fold(c, k2048, take<mode>(to, from, i + 128));
    d = fold(d, k2048, take<mode>(to, from, i + 192));
  }
  const __m512i k512 = spread(kBy512);
  a = fold(fold(fold(a, k512, b), k512, c), k512, d);
  for (; i + 64 <= n; i += 64) a = fold(a, k512, take<mode>(to, from, i));
  const __m128i acc = _mm_xor_si128(_mm_xor_si128(shift(_mm512_extracti32x4_epi32(a, 0), kBy384),
                                                  shift(_mm512_extracti32x4_epi32(a, 1), kBy256)),
                                    _mm_xor_si128(shift(_mm512_extracti32x4_epi32(a, 2), kBy128),
                                                  _mm512_extracti32x4_epi32(a, 3)));
  const std::uint32_t folded =
      crc32::step8(crc32::step8(0, static_cast<std::uint64_t>(_mm_extract_epi64(acc, 0))),
                   static_cast<std::uint64_t>(_mm_extract_epi64(acc, 1)));
  return n == i ? folded
                : rest<mode>(folded, mode == Mode::kCopy ? to + i : nullptr, from + i, n - i);
}

std::uint32_t update(std::uint32_t state, const std::byte* p, std::size_t n) {
  return run<Mode::kUpdate>(state, nullptr, p, n);
}

}  // namespace

constinit const IcrcKernel kVpclmulKernel = {
    .name = "vpclmul",
    .is_supported =
        [] {
          return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq") &&
                 kPclmulKernel.is_supported();
        },
    .update = update,
    .copy = crc32::copy_tail_last<run<Mode::kCopy>>,
};

}  // namespace rocemu::wire
