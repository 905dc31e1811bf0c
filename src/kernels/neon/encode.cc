// Encoding: codes equal codec/tile.h bit for bit (kernels/encode_tiles.h). A V line is written by
// one interleaving store (st4, st2).
#include "kernels/encode_tiles.h"
#include "kernels/neon/kernels.h"
#include "kernels/neon/vec.h"

namespace turboquant::neon {
namespace {

constexpr float kMaxHalf = 65504.0f;

// Scale of a group as f16, as float, and what multiplies values.
struct GroupScale {
  uint16_t scale = 0;
  uint16_t zero_point = 0;
  float inverse = 1.0f;
  float zero = 0.0f;
};

uint32x4_t FiniteMask(float32x4_t x) { return vcaltq_f32(x, vdupq_n_f32(__builtin_inff())); }

GroupScale FitSymmetric(const float* x, int n, float max_code) {
  float32x4_t max = Zero();
  for (int c = 0; c < n; c += 4) {
    const float32x4_t v = vld1q_f32(x + c);
    max = vmaxq_f32(max, Keep(vabsq_f32(v), FiniteMask(v)));
  }
  const float ideal = vmaxvq_f32(max) / max_code;
  GroupScale fit;
  fit.scale = ToF16(ideal < kMaxHalf ? ideal : kMaxHalf);
  fit.inverse = Inverse(FromF16(fit.scale));
  return fit;
}

GroupScale FitAsymmetric(const float* x, int n) {
  const float32x4_t infinity = vdupq_n_f32(__builtin_inff());
  const float32x4_t minus_infinity = vdupq_n_f32(-__builtin_inff());
  float32x4_t max = minus_infinity;
  float32x4_t negative_max = minus_infinity;  // of 0 - x
  for (int c = 0; c < n; c += 4) {
    const float32x4_t v = vld1q_f32(x + c);
    const uint32x4_t finite = FiniteMask(v);
    max = vmaxq_f32(max, vbslq_f32(finite, v, minus_infinity));
    negative_max = vmaxq_f32(negative_max, vsubq_f32(Zero(), vbslq_f32(finite, v, infinity)));
  }
  const float highest = vmaxvq_f32(max);
  const float negative_lowest = vmaxvq_f32(negative_max);  // 0 - min
  GroupScale fit;
  fit.inverse = 0.0f;
  if (highest < -negative_lowest) return fit;  // no finite value
  const float range = highest + negative_lowest;
  const float magnitude = negative_lowest < 0 ? -negative_lowest : negative_lowest;
  const float ideal = range > 0.0f ? range / 15.0f : magnitude;
  fit.scale = ToF16(ideal < kMaxHalf ? ideal : kMaxHalf);
  const float scale = FromF16(fit.scale);
  if (!(scale > 0.0f)) return fit;
  fit.inverse = 1.0f / scale;
  const float zero = negative_lowest / scale;
  fit.zero_point = ToF16(zero > kMaxHalf ? kMaxHalf : zero < -kMaxHalf ? -kMaxHalf : zero);
  fit.zero = FromF16(fit.zero_point);
  return fit;
}

// ---- quantizers: four scaled values (NaN already 0) to stored codes 0..255, and which of them
// stand at an end ----

struct Codes {
  int32x4_t stored;
  uint32x4_t at_end;  // all ones where so
};

float32x4_t Clamp(float32x4_t x, float low, float high) {
  return vminq_f32(vmaxq_f32(x, vdupq_n_f32(low)), vdupq_n_f32(high));
}

struct Int8Quantizer {
  static constexpr int kBits = 8;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, 127.0f); }
  template <bool kKey>
  static Codes Quantize(float32x4_t p, float32x4_t) {
    const int32x4_t code = vcvtnq_s32_f32(Clamp(p, -127.0f, 127.0f));
    const uint32x4_t at_end = vceqq_s32(vabsq_s32(code), vdupq_n_s32(127));
    return {kKey ? vaddq_s32(code, vdupq_n_s32(128)) : code, at_end};
  }
};

struct Int4Quantizer {
  static constexpr int kBits = 4;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, 7.0f); }
  template <bool>
  static Codes Quantize(float32x4_t p, float32x4_t) {
    const int32x4_t code = vcvtnq_s32_f32(Clamp(p, -7.0f, 7.0f));
    return {vaddq_s32(code, vdupq_n_s32(8)), vceqq_s32(vabsq_s32(code), vdupq_n_s32(7))};
  }
};

struct Int4AsymQuantizer {
  static constexpr int kBits = 4;
  static GroupScale Fit(const float* x, int n) { return FitAsymmetric(x, n); }
  template <bool>
  static Codes Quantize(float32x4_t p, float32x4_t zero) {
    const int32x4_t code = vcvtnq_s32_f32(Clamp(vaddq_f32(p, zero), 0.0f, 15.0f));
    return {code, vorrq_u32(vceqzq_s32(code), vceqq_s32(code, vdupq_n_s32(15)))};
  }
};

// Rounds the magnitude to kMantissa bits: by integer addition where the result is normal, by
// conversion of multiples of the subnormal step below.
template <int kMantissa, int kBias, int kMaxCode>
struct Fp8Quantizer {
  static constexpr int kBits = 8;
  static constexpr float kMax = kMantissa == 3 ? 448.0f : 57344.0f;
  static constexpr float kStepsPerOne = kMantissa == 3 ? 0x1p9f : 0x1p16f;  // 1 / subnormal step
  static constexpr float kSmallestNormal = kMantissa == 3 ? 0x1p-6f : 0x1p-14f;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, kMax); }
  template <bool>
  static Codes Quantize(float32x4_t p, float32x4_t) {
    constexpr int kShift = 23 - kMantissa;
    const float32x4_t magnitude = vminq_f32(vabsq_f32(p), vdupq_n_f32(kMax));
    const int32x4_t bits = vreinterpretq_s32_f32(magnitude);
    const int32x4_t odd = vandq_s32(vshrq_n_s32(bits, kShift), vdupq_n_s32(1));
    const int32x4_t half = vdupq_n_s32((1 << (kShift - 1)) - 1);
    const int32x4_t rounded = vshrq_n_s32(vaddq_s32(vaddq_s32(bits, half), odd), kShift);
    const int32x4_t normal = vsubq_s32(rounded, vdupq_n_s32((127 - kBias) << kMantissa));
    const int32x4_t steps = vcvtnq_s32_f32(vmulq_f32(magnitude, vdupq_n_f32(kStepsPerOne)));
    const uint32x4_t is_small = vcltq_f32(magnitude, vdupq_n_f32(kSmallestNormal));
    const int32x4_t code = vbslq_s32(is_small, steps, normal);
    const uint32x4_t sign = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(p), 24), vdupq_n_u32(0x80));
    return {vorrq_s32(code, vreinterpretq_s32_u32(sign)), vceqq_s32(code, vdupq_n_s32(kMaxCode))};
  }
};
using E4m3Quantizer = Fp8Quantizer<3, 7, 0x7E>;
using E5m2Quantizer = Fp8Quantizer<2, 15, 0x7B>;

// ---- rows of bytes ----

float32x4_t ScaledValues(const float* x, float32x4_t inverse) {
  const float32x4_t p = vmulq_f32(vld1q_f32(x), inverse);
  return Keep(p, vceqq_f32(p, p));
}

// The low bytes of eight codes.
uint8x8_t PackBytes(int32x4_t a, int32x4_t b) {
  return vreinterpret_u8_s8(vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
}

// 16-bit formats: no scale.
struct F16 {
  // Four values; infinities and NaN come through as base/half.h has them.
  static uint16x4_t Bits(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
};
struct Bf16 {
  static uint16x4_t Bits(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
    const uint32x4_t quiet_nan = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet_nan), 16);
  }
};

// For kernels/encode_tiles.h.
struct Rows {
  using Encoder = TileEncoder<Rows>;
  using GroupScale = neon::GroupScale;

  template <typename Quantizer, bool kKey>
  static int QuantizeGroup(const float* x, int n, const float* given, const GroupScale& fit,
                           uint8_t* bytes) {
    const float32x4_t inverse = vdupq_n_f32(fit.inverse), zero = vdupq_n_f32(fit.zero);
    uint32x4_t ends = vdupq_n_u32(0);  // minus their number
    for (int c = 0; c < n; c += 8) {
      const Eight each = given == nullptr ? Eight{inverse, inverse} : LoadEight(given + c);
      const Codes low = Quantizer::template Quantize<kKey>(ScaledValues(x + c, each.low), zero);
      const Codes high =
          Quantizer::template Quantize<kKey>(ScaledValues(x + c + 4, each.high), zero);
      ends = vaddq_u32(ends, vaddq_u32(low.at_end, high.at_end));
      vst1_u8(bytes + c, PackBytes(low.stored, high.stored));
    }
    return static_cast<int>(0u - vaddvq_u32(ends));
  }
  static float InverseOf(uint16_t scale) { return Inverse(FromF16(scale)); }

  // Codes of 8 channels in 8 bytes to the 4 bytes of a K lane: the first four below, the others on
  // top; in place.
  static void JoinKeyNibbles(uint8_t* row, int head_dim) {
    for (int c = 0; c < head_dim; c += 16) {
      const uint32x4_t codes = vreinterpretq_u32_u8(vld1q_u8(row + c));
      const uint8x8_t low = vreinterpret_u8_u32(vget_low_u32(vuzp1q_u32(codes, codes)));
      const uint8x8_t high = vreinterpret_u8_u32(vget_low_u32(vuzp2q_u32(codes, codes)));
      vst1_u8(row + c / 2, vorr_u8(low, vshl_n_u8(high, 4)));
    }
  }

  // rows: byte codes of the 4 (8-bit) or 8 (4-bit) tokens of one lane.
  template <int kBits>
  static void StoreValueRows(const Encoder::Row* rows, int head_dim, uint8_t* line) {
    for (int c = 0; c < head_dim; c += kLanes, line += kLineBytes) {
      uint8x16x4_t tokens;
      for (int i = 0; i < 4; ++i) {
        tokens.val[i] = vld1q_u8(rows[i] + c);
        if constexpr (kBits == 4)
          tokens.val[i] = vorrq_u8(tokens.val[i], vshlq_n_u8(vld1q_u8(rows[i + 4] + c), 4));
      }
      vst4q_u8(line, tokens);
    }
  }

  template <typename Half>
  static void ConvertRow(const float* x, int head_dim, uint8_t* row) {
    for (int c = 0; c < head_dim; c += 4)
      vst1_u8(row + 2 * c, vreinterpret_u8_u16(Half::Bits(vld1q_f32(x + c))));
  }

  // Two tokens of 16 channels, 16 bits each, to a line.
  static void StoreValuePairs(const Encoder::Row* rows, int head_dim, uint8_t* line) {
    for (int c = 0; c < head_dim; c += 8, line += kLineBytes / 2) {
      const uint16x8x2_t tokens = {{vreinterpretq_u16_u8(vld1q_u8(rows[0] + 2 * c)),
                                    vreinterpretq_u16_u8(vld1q_u8(rows[1] + 2 * c))}};
      vst2q_u16(reinterpret_cast<uint16_t*>(line), tokens);
    }
  }
};
using Encoder = Rows::Encoder;

}  // namespace

void EncodeF32(const EncodeArgs& args) { Encoder::EncodeFloats(args); }
void EncodeF16(const EncodeArgs& args) { Encoder::EncodeHalves<F16>(args); }
void EncodeBf16(const EncodeArgs& args) { Encoder::EncodeHalves<Bf16>(args); }
void EncodeInt8(const EncodeArgs& args) { Encoder::EncodeCodes<Int8Quantizer>(args); }
void EncodeFp8E4m3(const EncodeArgs& args) { Encoder::EncodeCodes<E4m3Quantizer>(args); }
void EncodeFp8E5m2(const EncodeArgs& args) { Encoder::EncodeCodes<E5m2Quantizer>(args); }
void EncodeInt4Sym(const EncodeArgs& args) { Encoder::EncodeCodes<Int4Quantizer>(args); }
void EncodeInt4Asym(const EncodeArgs& args) { Encoder::EncodeCodes<Int4AsymQuantizer>(args); }

}  // namespace turboquant::neon
