// Narrow formats (codec/narrow.h) for the loop of formats.h: a step is a unit of lines. Planes are
// taken out by shift and mask, codes become bytes (kernels/narrow_bytes.h) by a byte shuffle or as
// they are, and vpmaddubsw multiplies 32 of them with bytes of q or p.
//
// 16-bit sums of two vpmaddubsw hold everywhere: 4 * 63 * 127 and 4 * 32 * 255 are below 2^15.
#ifndef TURBOQUANT_KERNELS_AVX2_NARROW_H_
#define TURBOQUANT_KERNELS_AVX2_NARROW_H_

#include <type_traits>

#include "kernels/avx2/formats.h"
#include "kernels/narrow_bytes.h"

namespace turboquant::avx2 {

template <KvCacheDtype kDtype, bool kKey>
struct NarrowLines : IntegerFormat {
  using Bytes = NarrowBytes<kDtype, kKey>;
  static constexpr NarrowFormat kFormat = Bytes::kFormat;
  using Factor = std::conditional_t<kKey, int8_t, uint8_t>;
  static constexpr int kCodes = kFormat.CodesPerLane();
  static constexpr int kUnitLines = kFormat.num_lines;
  static constexpr int kMaxRows = 4;
  static constexpr bool kZeroPoint = false;
  static constexpr int kMult = Bytes::kMult, kBias = Bytes::kBias;
  static constexpr LevelBytes<kDtype, kKey, 32> kLevels = {};

  // Bits of one part of plane `plane`, moved to bit `to` of every byte.
  template <int kFrom, int kBits, int kTo>
  TQ_ALWAYS_INLINE static __m256i Part(__m256i x) {
    const __m256i mask = _mm256_set1_epi8(static_cast<int8_t>(((1 << kBits) - 1) << kTo));
    if constexpr (kFrom > kTo) x = _mm256_srli_epi16(x, kFrom - kTo);
    if constexpr (kFrom < kTo) x = _mm256_slli_epi16(x, kTo - kFrom);
    return _mm256_and_si256(x, mask);
  }

  // The bytes of a plane, lanes 8 * half on.
  template <int kPlane>
  TQ_ALWAYS_INLINE static __m256i Plane(const uint8_t* unit, int half) {
    constexpr int kPerLine = 8 / kFormat.low_bits;
    const __m256i low = LoadBytes(unit + kPlane / kPerLine * kLineBytes + 32 * half);
    __m256i code = Part<kFormat.low_bits*(kPlane % kPerLine), kFormat.low_bits, 0>(low);
    if constexpr (kFormat.high_bits > 0) {
      const __m256i high = LoadBytes(unit + kFormat.num_low * kLineBytes + 32 * half);
      code = _mm256_or_si256(
          code, Part<kFormat.high_bits * kPlane, kFormat.high_bits, kFormat.low_bits>(high));
    }
    if constexpr (Bytes::kTable) {
      const __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(kLevels.bytes));
      return _mm256_shuffle_epi8(table, code);
    } else if constexpr (kFormat.bits == 6 && !kKey) {
      return _mm256_sub_epi8(code, _mm256_set1_epi8(32));
    } else {
      return code;
    }
  }

  TQ_ALWAYS_INLINE static __m256i Products(__m256i codes, const Factor* factors) {
    const __m256i f = BroadcastQuad(factors);
    return kKey ? _mm256_maddubs_epi16(codes, f) : _mm256_maddubs_epi16(f, codes);
  }

  // Two planes from kPlane on.
  template <int kRows, int kPlane>
  TQ_ALWAYS_INLINE static void PlanePair(const uint8_t* unit, const Factor* factors,
                                         size_t row_stride, Acc (&acc)[kRows][kAccs]) {
    const __m256i mult = _mm256_set1_epi16(kMult);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i first = Plane<kPlane>(unit, half), second = Plane<kPlane + 1>(unit, half);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Factor* f = factors + Size(r) * row_stride + 4 * kPlane;
        const __m256i sum = _mm256_add_epi16(Products(first, f), Products(second, f + 4));
        acc[r][half] = _mm256_add_epi32(acc[r][half], _mm256_madd_epi16(sum, mult));
      }
    }
  }

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* unit, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    PlanePair<kRows, 0>(unit, factors, row_stride, acc);
    if constexpr (kFormat.num_planes > 2) PlanePair<kRows, 2>(unit, factors, row_stride, acc);
    if constexpr (kFormat.num_planes > 4) {
      PlanePair<kRows, 4>(unit, factors, row_stride, acc);
      PlanePair<kRows, 6>(unit, factors, row_stride, acc);
    }
  }
};

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_NARROW_H_
