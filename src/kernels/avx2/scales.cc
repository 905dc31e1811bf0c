// Scales of one byte: fitting and expanding, the bits of codec/scale_fit.h.
#include "codec/narrow.h"
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow_levels.h"

namespace turboquant::avx2 {
namespace {

constexpr float kMaxHalf = 65504.0f;

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

int Clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

uint16_t ScaleOf(int16_t bias, int code) {
  return static_cast<uint16_t>(Clamp(kScaleCodeStep * code + bias, 0, kMaxHalfBits));
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
int SearchCode(const float* row, int n, int16_t bias, int nearest) {
  const int first = Clamp(nearest - kScaleSearchSteps, 0, 255);
  const int last = Clamp(nearest + kScaleSearchSteps, 0, 255);
  int best = first;
  float least = 0;
  for (int code = first; code <= last; ++code) {
    const float error = SquaredError<kDtype>(row, n, FromF16(ScaleOf(bias, code)));
    if (code > first && !(error < least)) continue;
    best = code;
    least = error;
  }
  return best;
}

// search: of a narrow format; null: the scale that the largest value just needs.
using SearchFn = int (*)(const float* row, int n, int16_t bias, int nearest);
void Fit(const FitScalesArgs& args, float unit, SearchFn search) {
  float ideal[kMaxBlockTokens];
  int bits[kMaxBlockTokens];
  int largest = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* row = args.x + Size(t) * Size(args.head_dim);
    ideal[t] = (search == nullptr ? Amax(row, args.head_dim) : Rms(row, args.head_dim)) / unit;
    bits[t] = ToF16(ideal[t] < kMaxHalf ? ideal[t] : kMaxHalf);
    largest = bits[t] > largest ? bits[t] : largest;
  }
  constexpr int kHalfStep = kScaleCodeStep / 2;
  const int bias = kScaleCodeStep * ((largest + kHalfStep) / kScaleCodeStep - kLargestScaleCode);
  *args.bias = static_cast<int16_t>(bias);
  for (int t = 0; t < args.num_tokens; ++t) {
    const int above = Clamp(bits[t] - bias, 0, kMaxHalfBits - bias);
    const int round = search == nullptr ? kScaleCodeStep - 1 : kHalfStep;
    int code = Clamp((above + round) / kScaleCodeStep, 0, 255);
    if (search != nullptr && ideal[t] > 0) {
      code = search(args.x + Size(t) * Size(args.head_dim), args.head_dim, *args.bias, code);
    }
    args.codes[t] = static_cast<uint8_t>(code);
  }
  ExpandScales({args.codes, *args.bias, args.num_tokens, args.scales});
}

template <KvCacheDtype kDtype>
void FitNarrow(const FitScalesArgs& args) {
  constexpr float kUnit = NarrowFormatOf(kDtype).levels_per_rms;
  Fit(args, kUnit, SearchCode<kDtype>);
}

}  // namespace

void FitScales(const FitScalesArgs& args) {
  if (args.dtype == KvCacheDtype::kInt8) return Fit(args, 127.0f, nullptr);
  if (args.dtype == KvCacheDtype::kInt6) return FitNarrow<KvCacheDtype::kInt6>(args);
  if (args.dtype == KvCacheDtype::kInt5) return FitNarrow<KvCacheDtype::kInt5>(args);
  if (args.dtype == KvCacheDtype::kInt4) return FitNarrow<KvCacheDtype::kInt4>(args);
  if (args.dtype == KvCacheDtype::kInt3) return FitNarrow<KvCacheDtype::kInt3>(args);
  FitNarrow<KvCacheDtype::kInt2>(args);
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
