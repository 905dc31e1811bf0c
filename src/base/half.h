// IEEE binary16 and bfloat16 in software: the specification of the conversions, equal bit for bit
// to the F16C instructions (vcvtps2ph with round-to-nearest, vcvtph2ps).
//
//   binary16  s eeeee mmmmmmmmmm     bias 15, largest 65504, smallest normal 2^-14, smallest 2^-24
//   bfloat16  s eeeeeeee mmmmmmm     the upper half of a binary32
//
// Rounding is half to even, subnormals are kept (AVX512_BF16's vcvtneps2bf16 flushes them and is
// not equal), what is too large becomes infinity, a NaN stays a NaN (made quiet, sign and upper
// payload kept).
#ifndef TURBOQUANT_BASE_HALF_H_
#define TURBOQUANT_BASE_HALF_H_

#include <bit>
#include <cstdint>

namespace turboquant {

inline constexpr float kMaxHalf = 65504.0f;

constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65536
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24, the step of subnormals
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  // Rounding may carry into the exponent, up to infinity: that is the right result.
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

constexpr float Bf16ToFloat(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  const uint32_t odd = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7FFFu + odd) >> 16);
}

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_HALF_H_
