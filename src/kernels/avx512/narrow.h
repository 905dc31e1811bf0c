// Narrow formats: planes of a unit of lines as bytes (kernels/narrow_bytes.h) for vpdpbusd.
#ifndef TURBOQUANT_KERNELS_AVX512_NARROW_H_
#define TURBOQUANT_KERNELS_AVX512_NARROW_H_

#include "kernels/avx512/lines.h"
#include "kernels/narrow_bytes.h"

namespace turboquant::avx512 {
namespace {

template <KvCacheDtype kDtype, bool kKey>
struct NarrowLines {
  using Bytes = NarrowBytes<kDtype, kKey>;
  static constexpr NarrowFormat kFormat = Bytes::kFormat;
  static constexpr int kPlanes = kFormat.num_planes;
  static constexpr int kLines = kFormat.num_lines;
  static constexpr int kMult = Bytes::kMult, kBias = Bytes::kBias;
  static constexpr LevelBytes<kDtype, kKey, 64> kLevels = {};

  // Bits kFrom .. kFrom + kBits - 1 of every byte, moved to bit kTo.
  template <int kFrom, int kBits, int kTo>
  static TURBOQUANT_INLINE __m512i Part(__m512i x) {
    if constexpr (kFrom > kTo) x = _mm512_srli_epi16(x, kFrom - kTo);
    if constexpr (kFrom < kTo) x = _mm512_slli_epi16(x, kTo - kFrom);
    return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo)));
  }

  template <int kPlane>
  static TURBOQUANT_INLINE __m512i Plane(const uint8_t* unit) {
    constexpr int kPerLine = 8 / kFormat.low_bits;
    const __m512i low = _mm512_loadu_si512(unit + kPlane / kPerLine * kLineBytes);
    __m512i code = Part<kFormat.low_bits*(kPlane % kPerLine), kFormat.low_bits, 0>(low);
    if constexpr (kFormat.high_bits > 0) {
      const __m512i high = _mm512_loadu_si512(unit + kFormat.num_low * kLineBytes);
      code = _mm512_or_si512(
          code, Part<kFormat.high_bits * kPlane, kFormat.high_bits, kFormat.low_bits>(high));
    }
    if constexpr (Bytes::kTable) {
      return _mm512_shuffle_epi8(_mm512_loadu_si512(kLevels.bytes), code);
    } else if constexpr (kFormat.bits == 6 && !kKey) {
      return _mm512_sub_epi8(code, _mm512_set1_epi8(32));
    } else {
      return code;
    }
  }
};

}  // namespace
}  // namespace turboquant::avx512

#endif  // TURBOQUANT_KERNELS_AVX512_NARROW_H_
