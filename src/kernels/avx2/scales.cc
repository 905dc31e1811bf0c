// Scales of one byte: fitting and expanding, the bits of codec/scale_fit.h.
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow_levels.h"
#include "kernels/fit_scales.h"

namespace turboquant::avx2 {
namespace {

__m256 FiniteOrZero(__m256 x) {
  return _mm256_and_ps(x, _mm256_cmp_ps(Abs(x), _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ));
}

// For kernels/fit_scales.h.
struct Rows {
  static float Amax(const float* row, int n) {
    __m256 max = _mm256_setzero_ps();
    for (int c = 0; c < n; c += 8) {
      max = _mm256_max_ps(max, Abs(FiniteOrZero(_mm256_loadu_ps(row + c))));
    }
    return HorizontalMax(max);
  }

  static float Rms(const float* row, int n) {
    __m256 sum = _mm256_setzero_ps();
    for (int c = 0; c < n; c += 8) {
      const __m256 x = FiniteOrZero(_mm256_loadu_ps(row + c));
      sum = _mm256_add_ps(sum, _mm256_mul_ps(x, x));
    }
    const float mean = HorizontalSum(sum) / static_cast<float>(n);
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean)));
  }

  template <KvCacheDtype kDtype>
  static float SquaredError(const float* row, int n, float scale) {
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256 inverse = _mm256_set1_ps(Inverse(scale));
    __m256 error = _mm256_setzero_ps();
    for (int c = 0; c < n; c += 8) {
      const __m256 x = Abs(FiniteOrZero(_mm256_loadu_ps(row + c)));
      const __m256 magnitude = NarrowLevels<kDtype>::Magnitude(_mm256_mul_ps(x, inverse));
      const __m256 difference = _mm256_sub_ps(x, _mm256_mul_ps(factor, magnitude));
      error = _mm256_add_ps(error, _mm256_mul_ps(difference, difference));
    }
    return HorizontalSum(error);
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
  const __m256i bias = _mm256_set1_epi16(args.bias);
  const __m256i largest = _mm256_set1_epi16(kMaxHalfBits);
  for (int t = 0; t < args.num_tokens; t += 16) {
    const __m256i codes = _mm256_cvtepu8_epi16(LoadBytes16(args.codes + t));
    const __m256i bits = _mm256_add_epi16(_mm256_slli_epi16(codes, 6), bias);
    StoreBytes(args.scales + t,
               _mm256_min_epi16(_mm256_max_epi16(bits, _mm256_setzero_si256()), largest));
  }
}

}  // namespace turboquant::avx2
