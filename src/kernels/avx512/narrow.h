// Narrow formats (codec/narrow.h): planes of a unit of lines as bytes for vpdpbusd.
//
//   level = kMult * byte - kBias
//   int2, int3, int4   K: byte = level + 32 (1..63), V: byte = level
//   int5               byte = code (0..31), level = 2 * code - 31
//   int6               K: byte = code (0..63), level = 2 * code - 63
//                      V: byte = code - 32, level = 2 * byte + 1
#ifndef TURBOQUANT_KERNELS_AVX512_NARROW_H_
#define TURBOQUANT_KERNELS_AVX512_NARROW_H_

#include "codec/narrow.h"
#include "kernels/avx512/lines.h"

namespace turboquant::avx512 {
namespace {

// The byte that a code of a table format is multiplied as, for vpshufb.
template <KvCacheDtype kDtype, bool kKey>
struct LevelBytes {
  alignas(64) int8_t bytes[64] = {};
  constexpr LevelBytes() {
    constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<int8_t>(kFormat.Level(i % (2 * kFormat.half)) + (kKey ? 32 : 0));
    }
  }
};

template <KvCacheDtype kDtype, bool kKey>
struct NarrowLines {
  static constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  static constexpr bool kTable = kFormat.bits <= 4;
  static constexpr int kPlanes = kFormat.num_planes;
  static constexpr int kLines = kFormat.num_lines;
  static constexpr int kMult = kTable ? 1 : 2;
  static constexpr int kBias = kTable ? (kKey ? 32 : 0) : kFormat.bits == 5 ? 31 : kKey ? 63 : -1;
  static constexpr LevelBytes<kDtype, kKey> kLevels = {};

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
    if constexpr (kTable) {
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
