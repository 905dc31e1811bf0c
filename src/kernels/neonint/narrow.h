// Narrow formats (codec/narrow.h) for the loop of formats.h. A plane's codes are put together from
// their parts by shift and mask, and become bytes by
//
//   int2, int3, int4   a table (tbl): byte = level + 32     (1..63)
//   int5               byte = 2 * code = level + 31         (0..62)
//   int6               byte = 2 * code = level + 63         (0..126)
//
// so that one byte is a factor's partner both as signed (K) and as unsigned (V).
#ifndef TURBOQUANT_KERNELS_NEONINT_NARROW_H_
#define TURBOQUANT_KERNELS_NEONINT_NARROW_H_

#include "codec/narrow.h"
#include "kernels/neonint/formats.h"

namespace turboquant::TQ_FOLDER {

// The byte of every code of a table format.
template <KvCacheDtype kDtype>
struct LevelBytes {
  alignas(16) uint8_t bytes[16] = {};
  constexpr LevelBytes() {
    constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
    for (int i = 0; i < 16; ++i)
      bytes[i] = static_cast<uint8_t>(kFormat.Level(i % (2 * kFormat.half)) + 32);
  }
};

template <KvCacheDtype kDtype, bool kIsKey>
struct NarrowLines {
  static constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  static constexpr bool kTable = kFormat.bits <= 4;
  static constexpr bool kKey = kIsKey;
  static constexpr int kTerms = 1;
  static constexpr int kPlanes = kFormat.num_planes;
  static constexpr int kUnitLines = kFormat.num_lines;
  static constexpr int kBias = kTable ? 32 : (1 << kFormat.bits) - 1;
  static constexpr bool kZeroPoint = false;
  using Factor = typename SideFactor<kKey>::Type;
  static constexpr int kTo = kTable ? 0 : 1;  // bit of the byte where the code begins

  // Bits from kFrom on, kBits of them, of every byte, moved to bit kTarget.
  template <int kFrom, int kBits, int kTarget>
  TQ_ALWAYS_INLINE static uint8x16_t Part(uint8x16_t x) {
    constexpr auto kMask = static_cast<uint8_t>(((1 << kBits) - 1) << kTarget);
    if constexpr (kFrom > kTarget) x = vshrq_n_u8(x, kFrom - kTarget);
    if constexpr (kFrom < kTarget) x = vshlq_n_u8(x, kTarget - kFrom);
    return vandq_u8(x, vdupq_n_u8(kMask));
  }

  template <int kPlane>
  TQ_ALWAYS_INLINE static uint8x16_t Plane(const uint8_t* unit, int quarter) {
    constexpr int kLow = kFormat.low_bits, kHigh = kFormat.high_bits, kPerLine = 8 / kLow;
    const uint8x16_t low = vld1q_u8(unit + kPlane / kPerLine * kLineBytes + 16 * quarter);
    uint8x16_t code = Part<kLow*(kPlane % kPerLine), kLow, kTo>(low);
    if constexpr (kHigh > 0) {
      const uint8x16_t high = vld1q_u8(unit + kFormat.num_low * kLineBytes + 16 * quarter);
      code = vorrq_u8(code, Part<kHigh * kPlane, kHigh, kLow + kTo>(high));
    }
    if constexpr (kTable) {
      static constexpr LevelBytes<kDtype> kLevels = {};
      code = vqtbl1q_u8(vld1q_u8(kLevels.bytes), code);
    }
    return code;
  }
};

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_NARROW_H_
