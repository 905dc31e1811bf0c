#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {
namespace {

void StoreFloats(__m128i bytes, float* out) {  // 16 signed bytes
  _mm256_store_ps(out, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
  _mm256_store_ps(out + 8, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
}

// Codes of the mean as floats.
void DecodeMean(const MeanDotArgs& args, float* mean) {
  for (int c = 0; c < args.head_dim; c += 16) {
    if (args.mean_bits == 8) {
      StoreFloats(LoadBytes16(args.codes + c), mean + c);
      continue;
    }
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(args.codes + c / 2));
    const __m128i low = _mm_and_si128(bytes, nibble);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
    StoreFloats(_mm_sub_epi8(_mm_unpacklo_epi8(low, high), _mm_set1_epi8(8)), mean + c);
  }
}

}  // namespace

void MeanDot(const MeanDotArgs& args) {
  alignas(32) float mean[kMaxHeadDim];
  DecodeMean(args, mean);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
    for (int c = 0; c < args.head_dim; c += 16) {
      even = _mm256_fmadd_ps(_mm256_loadu_ps(q + c), _mm256_load_ps(mean + c), even);
      odd = _mm256_fmadd_ps(_mm256_loadu_ps(q + c + 8), _mm256_load_ps(mean + c + 8), odd);
    }
    args.out[r] = HorizontalSum(_mm256_add_ps(even, odd)) * args.scale;
  }
}

}  // namespace turboquant::avx2
