#include <cmath>
#include <limits>

#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {
namespace {

// Moves the row's maximum where the tile's exceeds it by enough; returns what to subtract from the
// logits.
float UpdateMax(float tile_max, float* max, float* rescale) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  *rescale = 1.0f;
  if (tile_max > *max + kLazyRescale || (*max == kNone && tile_max > kNone)) {
    *rescale = *max == kNone ? 0.0f : std::exp(*max - tile_max);
    *max = tile_max;
  }
  return *max == kNone ? 0.0f : *max;
}

void SoftmaxRow(const SoftmaxArgs& args, int r) {
  float* scores = args.scores + r * kMaxTileTokens;
  const int begin = args.begin[r];
  const int end = args.end[r];
  float tile_max = -std::numeric_limits<float>::infinity();
  for (int t = begin; t < end; ++t) {
    if (args.logit_softcap != 0)
      scores[t] = args.logit_softcap * std::tanh(scores[t] / args.logit_softcap);
    if (scores[t] > tile_max) tile_max = scores[t];
  }
  const float reference = UpdateMax(tile_max, &args.max[r], &args.rescale[r]);
  float sum = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const bool valid = begin <= t && t < end;
    scores[t] = valid ? std::exp(scores[t] - reference) : 0.0f;
    sum += scores[t];
  }
  args.sum[r] = args.sum[r] * args.rescale[r] + sum;
}

}  // namespace

void Softmax(const SoftmaxArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) SoftmaxRow(args, r);
}

}  // namespace turboquant::scalar
