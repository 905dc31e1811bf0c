#include "codec/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/scale.h"

namespace turboquant {
namespace {

// s, then exponent_bits, then mantissa_bits.
struct Fp8Format {
  int mantissa_bits;
  int bias;
  float max;
};
constexpr Fp8Format kE4m3 = {.mantissa_bits = 3, .bias = 7, .max = kMaxFp8E4m3};
constexpr Fp8Format kE5m2 = {.mantissa_bits = 2, .bias = 15, .max = kMaxFp8E5m2};

uint8_t Encode(const Fp8Format& format, float x) {
  if (std::isnan(x)) return 0;
  const uint32_t sign = (std::bit_cast<uint32_t>(x) >> 24) & 0x80u;
  const float magnitude = std::min(std::fabs(x), format.max);
  const int shift = 23 - format.mantissa_bits;
  const float smallest_normal = std::ldexp(1.0f, 1 - format.bias);
  if (magnitude < smallest_normal) {
    // Multiples of the subnormal step; the product with a power of two is exact. Rounding up to the
    // smallest normal gives its code.
    const float steps = std::rint(std::ldexp(magnitude, format.bias - 1 + format.mantissa_bits));
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(steps));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t odd = (bits >> shift) & 1u;
  const uint32_t rounded = (bits + (1u << (shift - 1)) - 1 + odd) >> shift;
  return static_cast<uint8_t>(
      sign | (rounded - (static_cast<uint32_t>(127 - format.bias) << format.mantissa_bits)));
}

// Finite codes only.
float Decode(const Fp8Format& format, uint8_t code) {
  const int exponent = (code & 0x7F) >> format.mantissa_bits;
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int implicit = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(implicit + mantissa),
                                     std::max(exponent, 1) - format.bias - format.mantissa_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float Special(uint8_t code, float magnitude) {
  return std::copysign(magnitude, (code & 0x80) != 0 ? -1.0f : 1.0f);
}

}  // namespace

uint8_t FloatToFp8E4m3(float x) { return Encode(kE4m3, x); }

uint8_t FloatToFp8E5m2(float x) { return Encode(kE5m2, x); }

float Fp8E4m3ToFloat(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return Special(code, std::numeric_limits<float>::quiet_NaN());
  return Decode(kE4m3, code);
}

float Fp8E5m2ToFloat(uint8_t code) {
  if ((code & 0x7F) == 0x7C) return Special(code, std::numeric_limits<float>::infinity());
  if ((code & 0x7F) > 0x7C) return Special(code, std::numeric_limits<float>::quiet_NaN());
  return Decode(kE5m2, code);
}

uint8_t QuantizeFp8(KvCacheDtype dtype, float x, float inv_scale) {
  const float p = Scaled(x, inv_scale);
  return dtype == KvCacheDtype::kFp8E4m3 ? FloatToFp8E4m3(p) : FloatToFp8E5m2(p);
}

float DequantizeFp8(KvCacheDtype dtype, uint8_t code, float scale) {
  return scale * (dtype == KvCacheDtype::kFp8E4m3 ? Fp8E4m3ToFloat(code) : Fp8E5m2ToFloat(code));
}

uint16_t QuantizeFp8Row(KvCacheDtype dtype, std::span<const float> x, std::span<uint8_t> codes) {
  CHECK_EQ(x.size(), codes.size());
  const uint16_t scale = SymmetricScale(FiniteAmax(x), LargestCode(dtype));
  const float inv_scale = InverseScale(HalfToFloat(scale));
  for (size_t i = 0; i < x.size(); ++i) codes[i] = QuantizeFp8(dtype, x[i], inv_scale);
  return scale;
}

void DequantizeFp8Row(KvCacheDtype dtype, std::span<const uint8_t> codes, uint16_t scale,
                      std::span<float> x) {
  CHECK_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = DequantizeFp8(dtype, codes[i], HalfToFloat(scale));
}

}  // namespace turboquant
