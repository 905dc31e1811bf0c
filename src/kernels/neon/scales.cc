// Scales of one byte: fitting and expanding, the bits of codec/scale_fit.h.
#include "kernels/fit_scales.h"
#include "kernels/neon/kernels.h"
#include "kernels/neon/narrow_levels.h"

namespace turboquant::neon {
namespace {

float32x4_t FiniteOrZero(float32x4_t x) {
  return Keep(x, vcaltq_f32(x, vdupq_n_f32(__builtin_inff())));
}

float32x4_t AddSquare(float32x4_t sum, float32x4_t x) { return vaddq_f32(sum, vmulq_f32(x, x)); }

// What the nearest level of each of four values misses.
template <KvCacheDtype kDtype>
TQ_ALWAYS_INLINE float32x4_t Missed(float32x4_t x, float32x4_t scale, float32x4_t inverse) {
  const float32x4_t absolute = vabsq_f32(FiniteOrZero(x));
  const float32x4_t magnitude = NarrowLevels<kDtype>::Magnitude(vmulq_f32(absolute, inverse));
  return vsubq_f32(absolute, vmulq_f32(scale, magnitude));
}

// For kernels/fit_scales.h.
struct Rows {
  static float Amax(const float* row, int n) {
    float32x4_t max = Zero();
    for (int c = 0; c < n; c += 4)
      max = vmaxq_f32(max, vabsq_f32(FiniteOrZero(vld1q_f32(row + c))));
    return vmaxvq_f32(max);
  }

  static float Rms(const float* row, int n) {
    Eight sums = {Zero(), Zero()};
    for (int c = 0; c < n; c += 8) {
      const Eight x = LoadEight(row + c);
      sums = {AddSquare(sums.low, FiniteOrZero(x.low)), AddSquare(sums.high, FiniteOrZero(x.high))};
    }
    const float mean = OrderedSum(sums) / static_cast<float>(n);
    return vgetq_lane_f32(vsqrtq_f32(vdupq_n_f32(mean)), 0);
  }

  template <KvCacheDtype kDtype>
  static float SquaredError(const float* row, int n, float scale) {
    const float32x4_t factor = vdupq_n_f32(scale), inverse = vdupq_n_f32(Inverse(scale));
    Eight error = {Zero(), Zero()};
    for (int c = 0; c < n; c += 8) {
      const Eight x = LoadEight(row + c);
      error = {AddSquare(error.low, Missed<kDtype>(x.low, factor, inverse)),
               AddSquare(error.high, Missed<kDtype>(x.high, factor, inverse))};
    }
    return OrderedSum(error);
  }

  static uint16_t ToHalf(float x) { return ToF16(x); }
  static float FromHalf(uint16_t h) { return FromF16(h); }
};

}  // namespace

void FitScales(const FitScalesArgs& args) {
  ScaleFitter<Rows>::Fit(args);
  ExpandScales({args.codes, *args.bias, args.num_tokens, args.scales});
}

void ExpandScales(const ExpandScalesArgs& args) {
  const int16x8_t bias = vdupq_n_s16(args.bias), largest = vdupq_n_s16(kMaxHalfBits);
  for (int t = 0; t < args.num_tokens; t += 8) {
    const int16x8_t steps = vreinterpretq_s16_u16(vshll_n_u8(vld1_u8(args.codes + t), 6));
    const int16x8_t bits = vaddq_s16(steps, bias);
    const int16x8_t clamped = vminq_s16(vmaxq_s16(bits, vdupq_n_s16(0)), largest);
    vst1q_u16(args.scales + t, vreinterpretq_u16_s16(clamped));
  }
}

}  // namespace turboquant::neon
