#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {
namespace {

__m128i EightHalves(__m256 x) {
  const __m256 limit = _mm256_set1_ps(65504.0f);
  const __m256 number = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));  // NaN to 0
  const __m256 low = _mm256_max_ps(number, _mm256_sub_ps(_mm256_setzero_ps(), limit));
  return _mm256_cvtps_ph(_mm256_min_ps(low, limit), _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace

void ToHalf(const ConvertArgs& args) {
  size_t i = 0;
  for (; i + 8 <= args.n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(args.out + i),
                     EightHalves(_mm256_loadu_ps(args.in + i)));
  }
  if (i == args.n) return;
  float in[8] = {};
  uint16_t out[8];
  __builtin_memcpy(in, args.in + i, (args.n - i) * sizeof(float));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), EightHalves(_mm256_loadu_ps(in)));
  __builtin_memcpy(args.out + i, out, (args.n - i) * sizeof(uint16_t));
}

}  // namespace turboquant::avx2
