#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"

namespace turboquant::avx512 {
namespace {

// 16 channels of q' from channel c on. The order of the products is part of the format
// (kernel_table.h).
TURBOQUANT_INLINE __m512 Folded(const PrepareQArgs& args, const float* q, int c) {
  const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(q + c), _mm512_set1_ps(args.scale));
  return args.channel_scales == nullptr
             ? scaled
             : _mm512_mul_ps(scaled, _mm512_loadu_ps(args.channel_scales + c));
}

// sq of a row: 0 where q' is tiny, NaN where it is not finite.
float ScaleOfRow(const PrepareQArgs& args, const float* q, float largest_code) {
  const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000));
  __m512 max = _mm512_setzero_ps();
  __mmask16 finite = 0xFFFF;
  for (int c = 0; c < args.head_dim; c += kLanes) {
    const __m512 x = _mm512_abs_ps(Folded(args, q, c));
    finite &= _mm512_cmp_ps_mask(x, infinity, _CMP_LT_OQ);
    max = _mm512_max_ps(x, max);
  }
  if (finite != 0xFFFF) return __builtin_nanf("");
  const float row_max = Max(max);
  return row_max < kTinyMax ? 0.0f : row_max / largest_code;
}

// Codes of 16 channels to their place in the row; returns their sum.
TURBOQUANT_INLINE int32_t StoreCodes(__m512i codes, uint8_t* out) {
  const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(128)), 8);
  const __m128i hi_bytes = _mm512_cvtepi32_epi8(hi);
  const __m128i lo_bytes =
      _mm512_cvtepi32_epi8(codes);  // codes - 256 * hi lies in -128..127: the low byte
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi32(hi_bytes, lo_bytes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_unpackhi_epi32(hi_bytes, lo_bytes));
  return Sum(codes);
}

void PrepareInteger(const PrepareQArgs& args) {
  const size_t row_bytes = PreparedRowBytes(args.head_dim, args.group_size);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + static_cast<size_t>(r) * args.q_stride;
    uint8_t* row = static_cast<uint8_t*>(args.out) + static_cast<size_t>(r) * row_bytes;
    uint8_t* tail = row + 2 * static_cast<size_t>(args.head_dim);
    const float scale = ScaleOfRow(args, q, kMaxQCode);
    std::memcpy(tail, &scale, sizeof(scale));
    for (int first = 0; first < args.head_dim; first += args.group_size) {
      int32_t sum = 0;
      for (int c = first; c < first + args.group_size; c += kLanes) {
        const __m512i codes =
            scale > 0 ? _mm512_cvtps_epi32(_mm512_div_ps(Folded(args, q, c), _mm512_set1_ps(scale)))
                      : _mm512_setzero_si512();
        sum += StoreCodes(codes, row + 2 * c);
      }
      tail += sizeof(sum);
      std::memcpy(tail, &sum, sizeof(sum));
    }
  }
}

// A byte per channel, in order; one group.
void PrepareNarrow(const PrepareQArgs& args) {
  const size_t row_bytes = PreparedRowBytes(args.head_dim, args.head_dim);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + static_cast<size_t>(r) * args.q_stride;
    uint8_t* row = static_cast<uint8_t*>(args.out) + static_cast<size_t>(r) * row_bytes;
    const float scale = ScaleOfRow(args, q, kMaxNarrowQCode);
    int32_t sum = 0;
    for (int c = 0; c < args.head_dim; c += kLanes) {
      const __m512i codes =
          scale > 0 ? _mm512_cvtps_epi32(_mm512_div_ps(Folded(args, q, c), _mm512_set1_ps(scale)))
                    : _mm512_setzero_si512();
      _mm_storeu_si128(reinterpret_cast<__m128i*>(row + c), _mm512_cvtepi32_epi8(codes));
      sum += Sum(codes);
    }
    std::memcpy(row + args.head_dim, &scale, sizeof(scale));
    std::memcpy(row + args.head_dim + sizeof(scale), &sum, sizeof(sum));
  }
}

template <bool kFp8Order>
void PrepareFloat(const PrepareQArgs& args) {
  const size_t row_bytes = PreparedRowBytes(args.head_dim, args.group_size);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + static_cast<size_t>(r) * args.q_stride;
    auto* row = reinterpret_cast<float*>(static_cast<uint8_t*>(args.out) +
                                         static_cast<size_t>(r) * row_bytes);
    for (int c = 0; c < args.head_dim; c += kLanes) {
      const __m512 x = Folded(args, q, c);
      _mm512_storeu_ps(row + c, kFp8Order ? ToFp8Order(x) : x);
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

}  // namespace turboquant::avx512
