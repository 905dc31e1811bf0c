// exp for a vector of four.
#ifndef TURBOQUANT_KERNELS_NEON_EXP_H_
#define TURBOQUANT_KERNELS_NEON_EXP_H_

#include "kernels/neon/vec.h"

namespace turboquant::neon {

// exp(x) = 2^n * e^r, n = round(x / ln 2), |r| <= ln2 / 2, e^r by the polynomial of
// kernels/avx2/exp.h with the same fused operations, so with its bits: relative error at most
// 2.99 * 2^-24, exp(0) = 1, 0 below -87.33654 (2^-126); x must not exceed 88. NaN stays NaN,
// whatever its payload: that is selected at the end, since adding n to the exponent would shift
// payload bits into it.
inline float32x4_t Exp(float32x4_t x) {
  const float32x4_t round_to_integer =
      vdupq_n_f32(0x1.8p23f);  // added, leaves n in the low mantissa bits
  const float32x4_t shifted = vfmaq_f32(round_to_integer, x, vdupq_n_f32(0x1.715476p+0f));
  const float32x4_t n = vsubq_f32(shifted, round_to_integer);
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e43p-1f));  // ln 2 in two parts
  r = vfmsq_f32(r, n, vdupq_n_f32(-0x1.05c61p-29f));
  float32x4_t e = vfmaq_f32(vdupq_n_f32(0x1.572a5ep-5f), vdupq_n_f32(0x1.1061e4p-7f), r);
  e = vfmaq_f32(vdupq_n_f32(0x1.5557bp-3f), e, r);
  e = vfmaq_f32(vdupq_n_f32(0x1.fffdfcp-2f), e, r);
  e = vfmaq_f32(vdupq_n_f32(1.0f), e, r);
  e = vfmaq_f32(vdupq_n_f32(1.0f), e, r);
  const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
  e = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(e), exponent));
  e = Keep(e, vcgeq_f32(x, vdupq_n_f32(-87.33654f)));
  return vbslq_f32(vceqq_f32(x, x), e, x);
}

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_EXP_H_
