#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"

namespace turboquant::avx512 {
namespace {

// NaN to 0, saturating.
TURBOQUANT_INLINE __m256i Halfs(__m512 x) {
  const __m512 clamped =
      _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-65504.0f)), _mm512_set1_ps(65504.0f));
  const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), clamped);
  return _mm512_cvtps_ph(number, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

}  // namespace

void ToHalf(const ConvertArgs& args) {
  size_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.out + i),
                        Halfs(_mm512_loadu_ps(args.in + i)));
  }
  const auto rest = static_cast<__mmask16>((1u << (args.n - i)) - 1);
  const __m512 x = _mm512_maskz_loadu_ps(rest, args.in + i);
  _mm256_mask_storeu_epi16(args.out + i, rest, Halfs(x));
}

}  // namespace turboquant::avx512
