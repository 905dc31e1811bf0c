// exp for a vector of eight.
#ifndef TURBOQUANT_KERNELS_AVX2_EXP_H_
#define TURBOQUANT_KERNELS_AVX2_EXP_H_

#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {

// exp(x) = 2^n * e^r, n = round(x / ln 2), |r| <= ln2 / 2, e^r by a degree-5 polynomial 1 + r + ...
// (so exp(0) is 1) fitted for least relative error, 1.05e-7. With rounding the relative error is at
// most 2.99 * 2^-24 (measured on every 7th float of [-87.33654, 88]).
// Below -87.33654 (2^-126) the result is 0; NaN stays NaN; x must not exceed 88.
inline __m256 Exp(__m256 x) {
  const __m256 round_to_integer =
      _mm256_set1_ps(0x1.8p23f);  // added, leaves n in the low mantissa bits
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), round_to_integer);
  const __m256 n = _mm256_sub_ps(shifted, round_to_integer);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e43p-1f), x);  // ln 2 in two parts
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c61p-29f), r);
  __m256 e = _mm256_fmadd_ps(_mm256_set1_ps(0x1.1061e4p-7f), r, _mm256_set1_ps(0x1.572a5ep-5f));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(0x1.5557bp-3f));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(0x1.fffdfcp-2f));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  e = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(e), exponent));
  return _mm256_and_ps(e, _mm256_cmp_ps(x, _mm256_set1_ps(-87.33654f), _CMP_NLT_UQ));
}

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_EXP_H_
