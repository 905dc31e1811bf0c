#include "kernels/avx2/exp.h"
#include "kernels/avx2/kernels.h"

namespace turboquant::avx2 {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// All ones where a token of [token, token + 8) lies in [begin, end).
__m256 ValidMask(int token, int begin, int end) {
  const __m256i index =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(token));
  const __m256i from_begin = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(begin - 1));
  return _mm256_castsi256_ps(
      _mm256_and_si256(from_begin, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index)));
}

// cap * tanh(logit / cap), tanh(y) = (1 - e) / (1 + e) with the sign of y and e = exp(-2 |y|):
// absolute error of tanh below 4 * 2^-24, so that of the logit below cap * 4 * 2^-24.
__m256 SoftCap(__m256 logit, __m256 cap) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 y = _mm256_div_ps(logit, cap);
  const __m256 e = Exp(_mm256_mul_ps(Abs(y), _mm256_set1_ps(-2.0f)));
  const __m256 tanh = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
  const __m256 sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f));
  return _mm256_mul_ps(cap, _mm256_or_ps(tanh, sign));
}

void SoftCapRow(float* scores, int num_tokens, float cap) {
  for (int t = 0; t < num_tokens; t += 8) {
    _mm256_storeu_ps(scores + t, SoftCap(_mm256_loadu_ps(scores + t), _mm256_set1_ps(cap)));
  }
}

void HideOutside(float* scores, int num_tokens, int begin, int end) {
  const __m256 hidden = _mm256_set1_ps(kMinusInfinity);
  for (int t = 0; t < num_tokens; t += 8) {
    _mm256_storeu_ps(scores + t, _mm256_blendv_ps(hidden, _mm256_loadu_ps(scores + t),
                                                  ValidMask(t, begin, end)));
  }
}

// Moves the row's maximum where the tile's exceeds it by enough; returns what to subtract from the
// logits.
float UpdateMax(float tile_max, float* max, float* rescale) {
  const float old = *max;
  *rescale = 1.0f;
  if (tile_max > old + kLazyRescale || (old == kMinusInfinity && tile_max > kMinusInfinity))
      [[unlikely]] {
    *rescale = old == kMinusInfinity ? 0.0f : _mm256_cvtss_f32(Exp(_mm256_set1_ps(old - tile_max)));
    *max = tile_max;
  }
  return *max == kMinusInfinity ? 0.0f : *max;
}

// Soft cap, mask and maximum of one row; returns what to subtract from its logits.
float ReferenceOfRow(const SoftmaxArgs& args, int r) {
  float* scores = args.scores + Size(r) * kMaxTileTokens;
  if (args.logit_softcap != 0) SoftCapRow(scores, args.num_tokens, args.logit_softcap);
  if (args.begin[r] > 0 || args.end[r] < args.num_tokens) {
    HideOutside(scores, args.num_tokens, args.begin[r], args.end[r]);
  }
  __m256 max = _mm256_set1_ps(kMinusInfinity);
  for (int t = 0; t < args.num_tokens; t += 8)
    max = _mm256_max_ps(_mm256_loadu_ps(scores + t), max);
  return UpdateMax(HorizontalMax(max), &args.max[r], &args.rescale[r]);
}

void ExpRow(const SoftmaxArgs& args, int r, float reference) {
  float* scores = args.scores + Size(r) * kMaxTileTokens;
  const __m256 subtract = _mm256_set1_ps(reference);
  __m256 sum = _mm256_setzero_ps();
  for (int t = 0; t < args.num_tokens; t += 8) {
    const __m256 p = Exp(_mm256_sub_ps(_mm256_loadu_ps(scores + t), subtract));
    _mm256_storeu_ps(scores + t, p);
    sum = _mm256_add_ps(sum, p);
  }
  args.sum[r] = args.sum[r] * args.rescale[r] + HorizontalSum(sum);
}

}  // namespace

void Softmax(const SoftmaxArgs& args) {
  // All maxima first: the reductions of the rows overlap, and no exp waits for one.
  float reference[kMaxTileRows];
  for (int r = 0; r < args.num_rows; ++r) reference[r] = ReferenceOfRow(args, r);
  for (int r = 0; r < args.num_rows; ++r) ExpRow(args, r, reference[r]);
}

}  // namespace turboquant::avx2
