// Encoding of the narrow formats: codes equal codec/tile.h bit for bit
// (kernels/encode_narrow_tiles.h).
#include "kernels/encode_narrow_tiles.h"
#include "kernels/neon/kernels.h"
#include "kernels/neon/narrow_levels.h"

namespace turboquant::neon {
namespace {

// A plane: 4 codes of a byte per lane, four lanes to a vector.
struct Plane {
  uint8x16_t quarter[kQuarters];
};

// Codes of four values; adds -1 to `ends` for every outermost one.
template <KvCacheDtype kDtype>
TQ_ALWAYS_INLINE int32x4_t CodesOf(float32x4_t x, float32x4_t inverse, int32x4_t& ends) {
  constexpr int kHalf = NarrowFormatOf(kDtype).half;
  float32x4_t p = vmulq_f32(x, inverse);
  p = Keep(p, vceqq_f32(p, p));  // NaN to 0
  const int32x4_t index = NarrowLevels<kDtype>::Index(vabsq_f32(p));
  const int32x4_t negative = vreinterpretq_s32_u32(vcltq_f32(p, Zero()));
  ends = vaddq_s32(ends, vreinterpretq_s32_u32(vceqq_s32(index, vdupq_n_s32(kHalf - 1))));
  // half + index, or half - 1 - index = half + ~index
  return vaddq_s32(vdupq_n_s32(kHalf), veorq_s32(index, negative));
}

// Bits from kFrom on, kBits of them, of every byte, moved to bit kTo.
template <int kFrom, int kBits, int kTo>
TQ_ALWAYS_INLINE uint8x16_t MoveBits(uint8x16_t x) {
  constexpr uint8_t kMask = (1 << kBits) - 1;
  x = vandq_u8(x, vdupq_n_u8(static_cast<uint8_t>(kMask << kFrom)));
  if constexpr (kFrom > kTo) x = vshrq_n_u8(x, kFrom - kTo);
  if constexpr (kFrom < kTo) x = vshlq_n_u8(x, kTo - kFrom);
  return x;
}

// Adds plane kPlane and those after it to the lines of a unit, four lanes.
template <KvCacheDtype kDtype, int kPlane = 0>
TQ_ALWAYS_INLINE void AddPlanes(const Plane* planes, int quarter, uint8x16_t* lines) {
  constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  constexpr int kPerLine = 8 / kFormat.low_bits;
  if constexpr (kPlane < kFormat.num_planes) {
    const uint8x16_t codes = planes[kPlane].quarter[quarter];
    uint8x16_t& low = lines[kPlane / kPerLine];
    low = vorrq_u8(low, MoveBits<0, kFormat.low_bits, kFormat.low_bits*(kPlane % kPerLine)>(codes));
    if constexpr (kFormat.high_bits > 0) {
      uint8x16_t& high = lines[kFormat.num_low];
      high = vorrq_u8(
          high, MoveBits<kFormat.low_bits, kFormat.high_bits, kFormat.high_bits * kPlane>(codes));
    }
    AddPlanes<kDtype, kPlane + 1>(planes, quarter, lines);
  }
}

// For kernels/encode_narrow_tiles.h.
struct Rows {
  using Plane = neon::Plane;

  // Codes of one row to bytes; returns the number of outermost ones.
  template <KvCacheDtype kDtype>
  static int CodeRow(const float* row, int n, float inverse, uint8_t* bytes) {
    const float32x4_t factor = vdupq_n_f32(inverse);
    int32x4_t ends = vdupq_n_s32(0);
    for (int c = 0; c < n; c += 8) {
      const Eight x = LoadEight(row + c);
      const int32x4_t low = CodesOf<kDtype>(x.low, factor, ends);
      const int32x4_t high = CodesOf<kDtype>(x.high, factor, ends);
      const int16x8_t words = vcombine_s16(vmovn_s32(low), vmovn_s32(high));
      vst1_u8(bytes + c, vreinterpret_u8_s8(vmovn_s16(words)));
    }
    return -vaddvq_s32(ends);
  }

  static void KeyPlane(const uint8_t (*tokens)[kMaxHeadDim], int channel, Plane* plane) {
    uint32_t words[kLanes];  // a token's four channels
    for (int t = 0; t < kLanes; ++t) __builtin_memcpy(&words[t], &tokens[t][channel], 4);
    for (int i = 0; i < kQuarters; ++i) {
      plane->quarter[i] = vreinterpretq_u8_u32(vld1q_u32(words + 4 * i));
    }
  }
  static void ValuePlane(const uint8_t (*tokens)[kMaxHeadDim], int channel, Plane* plane) {
    const uint8x16x4_t four = {{vld1q_u8(tokens[0] + channel), vld1q_u8(tokens[1] + channel),
                                vld1q_u8(tokens[2] + channel), vld1q_u8(tokens[3] + channel)}};
    uint8_t line[kLineBytes];  // four tokens of every channel side by side
    vst4q_u8(line, four);
    for (int i = 0; i < kQuarters; ++i) plane->quarter[i] = vld1q_u8(line + 16 * i);
  }

  template <KvCacheDtype kDtype>
  static void PackUnit(const Plane* planes, uint8_t* unit) {
    constexpr int kLines = NarrowFormatOf(kDtype).num_lines;
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      uint8x16_t lines[kLines];
      for (uint8x16_t& line : lines) line = vdupq_n_u8(0);
      AddPlanes<kDtype>(planes, quarter, lines);
      for (int i = 0; i < kLines; ++i) vst1q_u8(unit + i * kLineBytes + 16 * quarter, lines[i]);
    }
  }

  static float FromHalf(uint16_t h) { return FromF16(h); }
};

}  // namespace

void EncodeNarrow(const EncodeArgs& args) { NarrowTileEncoder<Rows>::Encode(args); }

}  // namespace turboquant::neon
