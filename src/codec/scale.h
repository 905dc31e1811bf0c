// The scale rules that int8, int4 and fp8 share. x ~ scale * code; a scale in a block is an f16.
#ifndef TURBOQUANT_CODEC_SCALE_H_
#define TURBOQUANT_CODEC_SCALE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/half.h"

namespace turboquant {

// Largest |x| over the finite values; 0 if there is none.
inline float FiniteAmax(std::span<const float> x) {
  float amax = 0.0f;
  for (float value : x) {
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

// f16 scale under which amax becomes max_code, the largest code of the format.
inline uint16_t SymmetricScale(float amax, float max_code) {
  return FloatToHalf(std::min(amax / max_code, kMaxHalf));
}

// 1 / scale, and 0 for a scale of 0: everything is then stored as 0.
inline float InverseScale(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// x * inv_scale, with 0 for NaN: from x itself, or from an infinity under a scale of 0.
inline float Scaled(float x, float inv_scale) {
  const float p = x * inv_scale;
  return std::isnan(p) ? 0.0f : p;
}

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_SCALE_H_
