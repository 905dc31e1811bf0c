#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"

namespace turboquant::avx512 {
namespace {

constexpr int kMaxVectors = kMaxTileTokens / kLanes;
constexpr float kInfinity = __builtin_inff();

// x = n * ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + Expm1Reduced(r), relative error of e^r 3e-9 +
// rounding (minimax).
struct Reduced {
  __m512 n, r;
};
TURBOQUANT_INLINE Reduced Reduce(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  const __m512 r =
      _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e430p-1f), x);  // ln 2 = this - 0x1.05c610p-29
  return {n, _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c610p-29f), r)};
}
TURBOQUANT_INLINE __m512 Expm1Reduced(__m512 r) {
  __m512 p = _mm512_set1_ps(0x1.6a2352p-10f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a6cp-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f4p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555490p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
  return _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
}

// NaN stays NaN: vmaxps and vminps return the second operand then.
TURBOQUANT_INLINE __m512 Exp(__m512 x) {
  const Reduced reduced = Reduce(_mm512_max_ps(_mm512_set1_ps(-110.0f), x));
  return _mm512_scalef_ps(_mm512_add_ps(_mm512_set1_ps(1.0f), Expm1Reduced(reduced.r)), reduced.n);
}

// tanh x = (e^2x - 1) / (e^2x + 1); e^2x - 1 without cancellation, so that small x keep their
// relative accuracy.
TURBOQUANT_INLINE __m512 Tanh(__m512 x) {
  const __m512 limit = _mm512_set1_ps(20.0f);
  const __m512 twice = _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), limit),
                                     _mm512_min_ps(limit, _mm512_add_ps(x, x)));
  const Reduced reduced = Reduce(twice);
  const __m512 power = _mm512_scalef_ps(_mm512_set1_ps(1.0f), reduced.n);
  const __m512 expm1 =
      _mm512_fmadd_ps(power, Expm1Reduced(reduced.r), _mm512_sub_ps(power, _mm512_set1_ps(1.0f)));
  return _mm512_div_ps(expm1, _mm512_add_ps(expm1, _mm512_set1_ps(2.0f)));
}

// Bit t is set where token t is valid.
TURBOQUANT_INLINE uint64_t ValidTokens(int begin, int end) {
  return begin < end ? (~uint64_t{0} >> (64 - (end - begin))) << begin : 0;
}

// The rare case: the maximum moves. Returns what to subtract from the logits.
__attribute__((noinline)) void MoveMax(__m512 tile_max, float* max, float* rescale) {
  const float moved = Max(tile_max);
  *rescale = *max == -kInfinity ? 0.0f : _mm512_cvtss_f32(Exp(_mm512_set1_ps(*max - moved)));
  *max = moved;
}

void SoftmaxRow(const SoftmaxArgs& args, int r) {
  float* scores = args.scores + r * kMaxTileTokens;
  const int vectors = args.num_tokens / kLanes;
  const uint64_t valid = ValidTokens(args.begin[r], args.end[r]);
  __m512 x[kMaxVectors];
  __m512 tile_max = _mm512_set1_ps(-kInfinity);
  for (int v = 0; v < kMaxVectors; ++v) {
    if (v >= vectors) continue;
    const auto mask = static_cast<__mmask16>(valid >> (v * kLanes));
    x[v] = _mm512_loadu_ps(scores + v * kLanes);
    if (args.logit_softcap != 0) {
      const __m512 cap = _mm512_set1_ps(args.logit_softcap);
      x[v] = _mm512_mul_ps(cap, Tanh(_mm512_div_ps(x[v], cap)));
    }
    tile_max = _mm512_mask_max_ps(tile_max, mask, x[v], tile_max);
  }
  // No horizontal maximum unless some lane asks for the move. From -inf any number does.
  args.rescale[r] = 1.0f;
  const __m512 threshold = _mm512_set1_ps(args.max[r] + kLazyRescale);
  if (_mm512_cmp_ps_mask(tile_max, threshold, _CMP_GT_OQ) != 0)
    MoveMax(tile_max, &args.max[r], &args.rescale[r]);
  const __m512 reference = _mm512_set1_ps(args.max[r] == -kInfinity ? 0.0f : args.max[r]);
  __m512 sum = _mm512_setzero_ps();
  for (int v = 0; v < kMaxVectors; ++v) {
    if (v >= vectors) continue;
    const auto mask = static_cast<__mmask16>(valid >> (v * kLanes));
    const __m512 p = _mm512_maskz_mov_ps(mask, Exp(_mm512_sub_ps(x[v], reference)));
    _mm512_storeu_ps(scores + v * kLanes, p);
    sum = _mm512_add_ps(sum, p);
  }
  args.sum[r] = args.sum[r] * args.rescale[r] + Sum(sum);
}

}  // namespace

void Softmax(const SoftmaxArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) SoftmaxRow(args, r);
}

}  // namespace turboquant::avx512
