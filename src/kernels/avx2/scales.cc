// Scales of one byte: fitting and expanding, the bits of codec/scale_fit.h.
#include "codec/narrow.h"
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow_levels.h"

namespace turboquant::avx2 {
namespace {

constexpr int kMaxTokens = 256;

__m256 FiniteOrZero(__m256 x) {
  return _mm256_and_ps(x, _mm256_cmp_ps(Abs(x), _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ));
}

float Amax(const float* row, int n) {
  __m256 max = _mm256_setzero_ps();
  for (int c = 0; c < n; c += 8) {
    max = _mm256_max_ps(max, Abs(FiniteOrZero(_mm256_loadu_ps(row + c))));
  }
  return HorizontalMax(max);
}

float Rms(const float* row, int n) {
  __m256 sum = _mm256_setzero_ps();
  for (int c = 0; c < n; c += 8) {
    const __m256 x = FiniteOrZero(_mm256_loadu_ps(row + c));
    sum = _mm256_add_ps(sum, _mm256_mul_ps(x, x));
  }
  const float mean = HorizontalSum(sum) / static_cast<float>(n);
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean)));
}

// SmallScale of codec/scale_fit.h, which as an inline function must not be called here.
float Small(int code) {
  const uint32_t bits = (static_cast<uint32_t>(code) << 19) + (113u << 23);
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

int CodeOfRatio(float ratio, bool round_up) {
  if (ratio > kMaxSmallScale) ratio = kMaxSmallScale;
  uint32_t bits;
  __builtin_memcpy(&bits, &ratio, sizeof(bits));
  if (bits <= 113u << 23) return 0;
  const uint32_t code = (bits - (113u << 23) + (round_up ? (1u << 19) - 1 : 1u << 18)) >> 19;
  return static_cast<int>(code < 255 ? code : 255);
}

template <KvCacheDtype kDtype>
float SquaredError(const float* row, int n, float scale) {
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

template <KvCacheDtype kDtype>
int SearchCode(const float* row, int n, float base, int nearest) {
  const int first = nearest > kScaleSearchSteps ? nearest - kScaleSearchSteps : 0;
  const int last = nearest + kScaleSearchSteps < 255 ? nearest + kScaleSearchSteps : 255;
  int best = first;
  float least = 0;
  for (int code = first; code <= last; ++code) {
    const float error = SquaredError<kDtype>(row, n, FromF16(ToF16(base * Small(code))));
    if (code > first && !(error < least)) continue;
    best = code;
    least = error;
  }
  return best;
}

// search: of a narrow format; null: the scale that the largest value just needs.
using SearchFn = int (*)(const float* row, int n, float base, int nearest);
void Fit(const FitScalesArgs& args, float unit, SearchFn search) {
  float ideal[kMaxTokens];
  float largest = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* row = args.x + Size(t) * Size(args.head_dim);
    ideal[t] = (search == nullptr ? Amax(row, args.head_dim) : Rms(row, args.head_dim)) / unit;
    largest = MaxOf(largest, ideal[t]);
  }
  *args.base = ToF16(largest < kMaxScaleBase ? largest : kMaxScaleBase);
  const float base = FromF16(*args.base);
  for (int t = 0; t < args.num_tokens; ++t) {
    int code = CodeOfRatio(base > 0 ? ideal[t] / base : 0.0f, search == nullptr);
    if (search != nullptr && ideal[t] > 0) {
      code = search(args.x + Size(t) * Size(args.head_dim), args.head_dim, base, code);
    }
    args.codes[t] = static_cast<uint8_t>(code);
  }
  ExpandScales({args.codes, *args.base, args.num_tokens, args.scales});
}

template <KvCacheDtype kDtype>
void FitNarrow(const FitScalesArgs& args) {
  constexpr float kUnit = NarrowFormatOf(kDtype).levels_per_rms;
  Fit(args, kUnit, SearchCode<kDtype>);
}

}  // namespace

void FitScales(const FitScalesArgs& args) {
  switch (args.dtype) {
    case KvCacheDtype::kInt6:
      return FitNarrow<KvCacheDtype::kInt6>(args);
    case KvCacheDtype::kInt5:
      return FitNarrow<KvCacheDtype::kInt5>(args);
    case KvCacheDtype::kInt4:
      return FitNarrow<KvCacheDtype::kInt4>(args);
    case KvCacheDtype::kInt3:
      return FitNarrow<KvCacheDtype::kInt3>(args);
    case KvCacheDtype::kInt2:
      return FitNarrow<KvCacheDtype::kInt2>(args);
    default:
      return Fit(args, 127.0f, nullptr);
  }
}

void ExpandScales(const ExpandScalesArgs& args) {
  const __m256 base = _mm256_set1_ps(FromF16(args.base));
  const __m256i zero = _mm256_set1_epi32(113 << 23);
  for (int t = 0; t < args.num_tokens; t += 8) {
    const __m256i codes = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(args.codes + t)));
    const __m256 small =
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(codes, 19), zero));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(args.scales + t),
                     _mm256_cvtps_ph(_mm256_mul_ps(base, small), _MM_FROUND_TO_NEAREST_INT));
  }
}

}  // namespace turboquant::avx2
