// From scaled values to levels of the narrow formats, four at a time: what fitting scales and
// encoding share.
#ifndef TURBOQUANT_KERNELS_NEON_NARROW_LEVELS_H_
#define TURBOQUANT_KERNELS_NEON_NARROW_LEVELS_H_

#include "codec/narrow.h"
#include "kernels/neon/vec.h"

namespace turboquant::neon {

template <KvCacheDtype kDtype>
struct NarrowLevels {
  static constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  static constexpr bool kEven = kFormat.bits >= 5;  // magnitudes 1, 3, 5 ..

  // Magnitudes 1, 3, .. meet at 2, 4, ..: index = ceil(p / 2) - 1 within 0 .. half - 1.
  TQ_ALWAYS_INLINE static float32x4_t EvenIndex(float32x4_t p) {
    const float32x4_t up = vrndpq_f32(vmulq_f32(p, vdupq_n_f32(0.5f)));
    const float32x4_t index = vsubq_f32(up, vdupq_n_f32(1.0f));
    constexpr float kLast = static_cast<float>(kFormat.half - 1);
    return vmaxq_f32(vminq_f32(index, vdupq_n_f32(kLast)), Zero());
  }

  // Adds step(k) for every threshold k below p.
  template <typename Step, int k = 0>
  TQ_ALWAYS_INLINE static float32x4_t AddSteps(float32x4_t p, float32x4_t sum) {
    if constexpr (k + 1 < kFormat.half) {
      constexpr float kThreshold = kFormat.Threshold(k), kStep = Step::Of(k);
      const uint32x4_t above = vcgtq_f32(p, vdupq_n_f32(kThreshold));
      sum = vaddq_f32(sum, Keep(vdupq_n_f32(kStep), above));
      return AddSteps<Step, k + 1>(p, sum);
    } else {
      return sum;
    }
  }
  struct One {
    static constexpr float Of(int) { return 1.0f; }
  };
  struct Distance {
    static constexpr float Of(int k) {
      return static_cast<float>(kFormat.magnitudes[static_cast<size_t>(k) + 1] -
                                kFormat.magnitudes[static_cast<size_t>(k)]);
    }
  };

  // p: not negative, not NaN.
  TQ_ALWAYS_INLINE static float32x4_t Magnitude(float32x4_t p) {
    if constexpr (kEven) {
      const float32x4_t index = EvenIndex(p);
      return vaddq_f32(vaddq_f32(index, index), vdupq_n_f32(1.0f));
    } else {
      constexpr float kFirst = static_cast<float>(kFormat.magnitudes[0]);
      return AddSteps<Distance>(p, vdupq_n_f32(kFirst));
    }
  }
  TQ_ALWAYS_INLINE static int32x4_t Index(float32x4_t p) {
    if constexpr (kEven) return vcvtnq_s32_f32(EvenIndex(p));
    return vcvtnq_s32_f32(AddSteps<One>(p, Zero()));
  }
};

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_NARROW_LEVELS_H_
