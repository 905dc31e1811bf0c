#include "kernels/avx2/kernels.h"
#include "kernels/avx2/prepared_q.h"

namespace turboquant::avx2 {
namespace {

// Eight values of q'.
__m256 Folded(const PrepareQArgs& args, const float* q, int c) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(q + c), _mm256_set1_ps(args.scale));
  return args.channel_scales == nullptr
             ? scaled
             : _mm256_mul_ps(scaled, _mm256_loadu_ps(args.channel_scales + c));
}

// sq, or 0 or NaN for a row that gets no codes.
float ScaleOfRow(const PrepareQArgs& args, const float* q, float max_code) {
  __m256 max = _mm256_setzero_ps();
  __m256 not_finite = _mm256_setzero_ps();  // x - x is NaN for NaN and infinity
  for (int c = 0; c < args.head_dim; c += 8) {
    const __m256 value = Folded(args, q, c);
    max = _mm256_max_ps(Abs(value), max);
    const __m256 zero = _mm256_sub_ps(value, value);
    not_finite = _mm256_or_ps(not_finite, _mm256_cmp_ps(zero, zero, _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(not_finite) != 0) return __builtin_nanf("");
  const float largest = HorizontalMax(max);
  return largest < kTinyMax ? 0.0f : largest / max_code;
}

// Codes of one group; returns their sum.
int32_t QuantizeGroup(const PrepareQArgs& args, const float* q, float scale, int begin,
                      int16_t* codes) {
  const __m256 divisor = _mm256_set1_ps(scale);
  __m256i sum = _mm256_setzero_si256();
  for (int c = begin; c < begin + args.group_size; c += 16) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_div_ps(Folded(args, q, c), divisor));
    const __m256i b = _mm256_cvtps_epi32(_mm256_div_ps(Folded(args, q, c + 8), divisor));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
    StoreBytes(codes + c, OrderQuads(_mm256_packs_epi32(a, b)));
  }
  return HorizontalSum(sum);
}

void PrepareInteger(const PrepareQArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    const IntegerQ out = IntegerQRow(args.out, r, args.head_dim, args.group_size);
    const float scale = ScaleOfRow(args, q, kMaxQCode);
    *out.scale = scale;
    for (int g = 0; g < args.head_dim / args.group_size; ++g) {
      const int begin = g * args.group_size;
      if (scale > 0) {
        out.sums[g] = QuantizeGroup(args, q, scale, begin, out.codes);
      } else {
        out.sums[g] = 0;
        __builtin_memset(out.codes + begin, 0, 2 * Size(args.group_size));
      }
    }
  }
}

// One byte per channel, in order; one group.
void PrepareNarrow(const PrepareQArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    const NarrowQ out = NarrowQRow(args.out, r, args.head_dim);
    const float scale = ScaleOfRow(args, q, kMaxNarrowQCode);
    *out.scale = scale;
    __m256i sum = _mm256_setzero_si256();
    for (int c = 0; c < args.head_dim; c += 8) {
      const __m256i codes =
          scale > 0 ? _mm256_cvtps_epi32(_mm256_div_ps(Folded(args, q, c), _mm256_set1_ps(scale)))
                    : _mm256_setzero_si256();
      sum = _mm256_add_epi32(sum, codes);
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out.codes + c), _mm_packs_epi16(words, words));
    }
    *out.sum = HorizontalSum(sum);
  }
}

// kQuads: factors stand in the order 0 2 1 3 of every four channels.
template <bool kQuads>
void PrepareFloat(const PrepareQArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    float* out = FloatQRow(args.out, r, args.head_dim, args.group_size);
    for (int c = 0; c < args.head_dim; c += 8) {
      __m256 value = Folded(args, q, c);
      if constexpr (kQuads) value = _mm256_permute_ps(value, 0xD8);
      _mm256_storeu_ps(out + c, value);
    }
  }
}

}  // namespace

void PrepareQF32(const PrepareQArgs& args) { PrepareFloat<false>(args); }
void PrepareQF16(const PrepareQArgs& args) { PrepareFloat<false>(args); }
void PrepareQBf16(const PrepareQArgs& args) { PrepareFloat<false>(args); }
void PrepareQInt8(const PrepareQArgs& args) { PrepareInteger(args); }
void PrepareQFp8E4m3(const PrepareQArgs& args) { PrepareFloat<true>(args); }
void PrepareQFp8E5m2(const PrepareQArgs& args) { PrepareFloat<true>(args); }
void PrepareQNarrow(const PrepareQArgs& args) { PrepareNarrow(args); }
void PrepareQInt4Sym(const PrepareQArgs& args) { PrepareInteger(args); }
void PrepareQInt4Asym(const PrepareQArgs& args) { PrepareInteger(args); }

}  // namespace turboquant::avx2
