// Static scales that give way: a block whose values leave the calibrated range of a head is encoded
// under a larger scale, and the factor stands in the block. What calibration did not see then costs
// that block precision, not its outliers. The rule looks at one block only, so that a block's bytes
// depend on its own tokens and nothing else (docs/decisions/008-correction-of-static-scales.md).
//
//   reach = max |x| / (static scale * largest code)     over the block's finite values of one head
//   a block is corrected where reach > 1.2, or more than 0.3 % of its values lie beyond the range
//   correction = 1, or reach as the next larger f16     static scales are multiplied with it
//
// Granularities "per_tensor:fixed", "per_head:fixed" and "per_channel:fixed" have no correction.
#ifndef TURBOQUANT_CODEC_CORRECTION_H_
#define TURBOQUANT_CODEC_CORRECTION_H_

#include <array>
#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

inline constexpr float kUncorrectedReach = 1.2f;
inline constexpr int kUncorrectedPerMille = 3;     // of values beyond the range
inline constexpr uint16_t kNoCorrection = 0x3C00;  // f16 1

// Values of one KV head and side in a block.
struct RangeArgs {
  const float* x;  // [num_tokens][head_dim]
  int num_tokens, head_dim;
  KvCacheDtype dtype;        // with static scales: LargestCode(dtype)
  HeadScales static_scales;  // > 0
};

struct RangeUse {
  float reach = 0;                      // 1: the range is used to its end; 65504 at most
  uint16_t correction = kNoCorrection;  // f16
};
RangeUse MeasureRange(const RangeArgs& args);

// Static scales times a block's correction; those per channel are written to `channels`.
HeadScales Corrected(const HeadScales& scales, uint16_t correction, int head_dim,
                     std::array<float, kMaxHeadDimOfSpec>* channels);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_CORRECTION_H_
