// The f16 that stands in a block's header for a side of a KV head: the scale of the whole block
// (per_block), or what static scales are multiplied with where they give way.
//
//   per_block     scale = max |x| / largest code, rounded to f16         over the block's finite
//   values static        reach = max |x| / (static scale * largest code)
//                 a block is corrected where reach > 1.2, or more than 0.3 % of its values lie
//                 beyond the range; correction = 1, or reach as the next larger f16
//
// So what calibration did not see costs its block precision, not its outliers. Both rules look at
// one block only: a block's bytes depend on its own tokens and nothing else
// (docs/decisions/008-correction-of-static-scales.md). Granularities "per_tensor:fixed",
// "per_head:fixed" and "per_channel:fixed" have no correction.
#ifndef TURBOQUANT_CODEC_BLOCK_SCALE_H_
#define TURBOQUANT_CODEC_BLOCK_SCALE_H_

#include <array>
#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

inline constexpr float kUncorrectedReach = 1.2f;
inline constexpr int kUncorrectedPerMille = 3;     // of values beyond the range
inline constexpr uint16_t kNoCorrection = 0x3C00;  // f16 1

// Values of one KV head and side in a block.
struct BlockScaleArgs {
  const float* x;  // [num_tokens][head_dim]
  int num_tokens, head_dim;
  KvSideSpec side;           // static or kPerBlock
  HeadScales static_scales;  // > 0; {1, null} for kPerBlock
};

struct BlockScale {
  float reach = 0;  // of static scales. 1: the range is used to its end; 65504 at most
  uint16_t factor = kNoCorrection;  // f16
};
BlockScale FitBlockScale(const BlockScaleArgs& args);

// `scales` times a block's factor; those per channel are written to `channels`.
HeadScales ScaledBy(const HeadScales& scales, uint16_t factor, int head_dim,
                    std::array<float, kMaxHeadDimOfSpec>* channels);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_BLOCK_SCALE_H_
