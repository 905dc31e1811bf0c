#include "kernels/avx2/formats.h"
#include "kernels/avx2/kernels.h"

namespace turboquant::avx2 {
namespace {

// Codes of 16 channels as floats.
template <int kBits>
TQ_ALWAYS_INLINE LaneFloats Codes(const uint8_t* codes, int channel) {
  if constexpr (kBits == 8) {
    const __m128i bytes = LoadBytes16(codes + channel);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  } else {
    const __m256i bytes = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + channel / 2)));
    const __m256i eight = _mm256_set1_epi32(8);
    const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi32(15));
    return {_mm256_cvtepi32_ps(_mm256_sub_epi32(low, eight)),
            _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bytes, 4), eight))};
  }
}

template <int kBits, int kRows>
TQ_ALWAYS_INLINE void Rows(const MeanDotArgs& args, int first_row) {
  __m256 acc[kRows][2] = {};
  const float* q = args.q + Size(first_row) * args.q_stride;
  for (int c = 0; c < args.head_dim; c += 16) {
    const LaneFloats mean = Codes<kBits>(args.codes, c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float* row = q + Size(r) * args.q_stride + c;
      acc[r][0] = _mm256_fmadd_ps(_mm256_loadu_ps(row), mean.low, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(_mm256_loadu_ps(row + 8), mean.high, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    args.out[first_row + r] = HorizontalSum(_mm256_add_ps(acc[r][0], acc[r][1])) * args.scale;
  }
}

template <int kBits>
void Dot(const MeanDotArgs& args) {
  ForRowBlocks<4>(args.num_rows,
                  [&args]<int kRows>(int first_row) { Rows<kBits, kRows>(args, first_row); });
}

}  // namespace

void MeanDot(const MeanDotArgs& args) { args.mean_bits == 8 ? Dot<8>(args) : Dot<4>(args); }

}  // namespace turboquant::avx2
