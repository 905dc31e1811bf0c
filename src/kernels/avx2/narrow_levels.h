// From scaled values to levels of the narrow formats, eight at a time: what fitting scales and
// encoding share.
#ifndef TURBOQUANT_KERNELS_AVX2_NARROW_LEVELS_H_
#define TURBOQUANT_KERNELS_AVX2_NARROW_LEVELS_H_

#include "codec/narrow.h"
#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {

template <KvCacheDtype kDtype>
struct NarrowLevels {
  static constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  static constexpr bool kEven = kFormat.bits >= 5;  // magnitudes 1, 3, 5 ..

  // Magnitudes 1, 3, .. meet at 2, 4, ..: index = ceil(p / 2) - 1 within 0 .. half - 1.
  TQ_ALWAYS_INLINE static __m256 EvenIndex(__m256 p) {
    const __m256 up = _mm256_ceil_ps(_mm256_mul_ps(p, _mm256_set1_ps(0.5f)));
    const __m256 index = _mm256_sub_ps(up, _mm256_set1_ps(1.0f));
    return _mm256_max_ps(_mm256_min_ps(index, _mm256_set1_ps(static_cast<float>(kFormat.half - 1))),
                         _mm256_setzero_ps());
  }

  // Adds step(k) for every threshold k below p.
  template <typename Step, int k = 0>
  TQ_ALWAYS_INLINE static __m256 AddSteps(__m256 p, __m256 sum) {
    if constexpr (k + 1 < kFormat.half) {
      constexpr float kThreshold = kFormat.Threshold(k);
      const __m256 above = _mm256_cmp_ps(p, _mm256_set1_ps(kThreshold), _CMP_GT_OQ);
      constexpr float kStep = Step::Of(k);
      sum = _mm256_add_ps(sum, _mm256_and_ps(above, _mm256_set1_ps(kStep)));
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
  TQ_ALWAYS_INLINE static __m256 Magnitude(__m256 p) {
    if constexpr (kEven) {
      const __m256 index = EvenIndex(p);
      return _mm256_add_ps(_mm256_add_ps(index, index), _mm256_set1_ps(1.0f));
    } else {
      return AddSteps<Distance>(p, _mm256_set1_ps(static_cast<float>(kFormat.magnitudes[0])));
    }
  }
  TQ_ALWAYS_INLINE static __m256i Index(__m256 p) {
    if constexpr (kEven) return _mm256_cvtps_epi32(EvenIndex(p));
    return _mm256_cvtps_epi32(AddSteps<One>(p, _mm256_setzero_ps()));
  }
};

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_NARROW_LEVELS_H_
