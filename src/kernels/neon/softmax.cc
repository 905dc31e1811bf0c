#include "kernels/neon/exp.h"
#include "kernels/neon/kernels.h"

namespace turboquant::neon {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// All ones where a token of [token, token + 4) lies in [begin, end).
uint32x4_t ValidMask(int token, int begin, int end) {
  const int32x4_t first = {0, 1, 2, 3};
  const int32x4_t index = vaddq_s32(first, vdupq_n_s32(token));
  return vandq_u32(vcgeq_s32(index, vdupq_n_s32(begin)), vcltq_s32(index, vdupq_n_s32(end)));
}

// cap * tanh(logit / cap), tanh(y) = (1 - e) / (1 + e) with the sign of y and e = exp(-2 |y|):
// absolute error of tanh below 4 * 2^-24, so that of the logit below cap * 4 * 2^-24.
float32x4_t SoftCap(float32x4_t logit, float32x4_t cap) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  const float32x4_t y = vdivq_f32(logit, cap);
  const float32x4_t e = Exp(vmulq_f32(vabsq_f32(y), vdupq_n_f32(-2.0f)));
  const float32x4_t tanh = vdivq_f32(vsubq_f32(one, e), vaddq_f32(one, e));
  return vmulq_f32(cap, vbslq_f32(vdupq_n_u32(0x80000000u), y, tanh));
}

void SoftCapRow(float* scores, int num_tokens, float cap) {
  for (int t = 0; t < num_tokens; t += 4)
    vst1q_f32(scores + t, SoftCap(vld1q_f32(scores + t), vdupq_n_f32(cap)));
}

void HideOutside(float* scores, int num_tokens, int begin, int end) {
  const float32x4_t hidden = vdupq_n_f32(kMinusInfinity);
  for (int t = 0; t < num_tokens; t += 4) {
    vst1q_f32(scores + t, vbslq_f32(ValidMask(t, begin, end), vld1q_f32(scores + t), hidden));
  }
}

// Moves the row's maximum where the tile's exceeds it by enough; returns what to subtract from the
// logits.
float UpdateMax(float tile_max, float* max, float* rescale) {
  const float old = *max;
  *rescale = 1.0f;
  if (tile_max > old + kLazyRescale || (old == kMinusInfinity && tile_max > kMinusInfinity))
      [[unlikely]] {
    *rescale = old == kMinusInfinity ? 0.0f : vgetq_lane_f32(Exp(vdupq_n_f32(old - tile_max)), 0);
    *max = tile_max;
  }
  return *max == kMinusInfinity ? 0.0f : *max;
}

// Soft cap, mask and maximum of one row; returns what to subtract from its logits. The maxnm
// instructions pass over a NaN, as the specification's comparison does.
float ReferenceOfRow(const SoftmaxArgs& args, int r) {
  float* scores = args.scores + Size(r) * kMaxTileTokens;
  if (args.logit_softcap != 0) SoftCapRow(scores, args.num_tokens, args.logit_softcap);
  if (args.begin[r] > 0 || args.end[r] < args.num_tokens) {
    HideOutside(scores, args.num_tokens, args.begin[r], args.end[r]);
  }
  float32x4_t max = vdupq_n_f32(kMinusInfinity);
  for (int t = 0; t < args.num_tokens; t += 4) max = vmaxnmq_f32(max, vld1q_f32(scores + t));
  return UpdateMax(vmaxnmvq_f32(max), &args.max[r], &args.rescale[r]);
}

void ExpRow(const SoftmaxArgs& args, int r, float reference) {
  float* scores = args.scores + Size(r) * kMaxTileTokens;
  const float32x4_t subtract = vdupq_n_f32(reference);
  float32x4_t sum = Zero();
  for (int t = 0; t < args.num_tokens; t += 4) {
    const float32x4_t p = Exp(vsubq_f32(vld1q_f32(scores + t), subtract));
    vst1q_f32(scores + t, p);
    sum = vaddq_f32(sum, p);
  }
  args.sum[r] = args.sum[r] * args.rescale[r] + vaddvq_f32(sum);
}

}  // namespace

void Softmax(const SoftmaxArgs& args) {
  // All maxima first: the reductions of the rows overlap, and no exp waits for one.
  float reference[kMaxTileRows];
  for (int r = 0; r < args.num_rows; ++r) reference[r] = ReferenceOfRow(args, r);
  for (int r = 0; r < args.num_rows; ++r) ExpRow(args, r, reference[r]);
}

}  // namespace turboquant::neon
