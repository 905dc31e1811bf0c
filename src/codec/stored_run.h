// One side of a run (the tokens of one KV head in a block), written and read back by the codec's
// plain code: what kernels must write, and what attention takes the codes for. For tests and
// measurements; serving uses the offsets only.
#ifndef TURBOQUANT_CODEC_STORED_RUN_H_
#define TURBOQUANT_CODEC_STORED_RUN_H_

#include <cstddef>
#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

// Where a side lies in a run.
struct SideOffsets {
  size_t lines, scales, zero_points, scale_bias, block_scale;
};
constexpr SideOffsets OffsetsOf(const KvBlockLayout& layout, KvSide side) {
  if (side == KvSide::kKey) {
    return {layout.k_lines, layout.k_scales, layout.k_zero_points, layout.k_scale_bias,
            layout.k_block_scale};
  }
  return {layout.v_lines, layout.v_scales, layout.v_zero_points, layout.v_scale_bias,
          layout.v_block_scale};
}

struct WriteRunArgs {
  const KvCacheSpec* spec;
  const KvBlockLayout* layout;  // of spec
  KvSide side;
  float* x;  // [block_size][head_dim], rounded to the exact format; keys are centered
  HeadScales static_scales;  // read for static granularities only
  uint8_t* run;              // out: all of the side but padding
};
void WriteRun(const WriteRunArgs& args);

struct ReadRunArgs {
  const KvCacheSpec* spec;
  const KvBlockLayout* layout;  // of spec
  KvSide side;
  const uint8_t* run;        // of one KV head in a closed block
  HeadScales static_scales;  // read for static granularities only; without the block's block_scale
  float* x;                  // out: [block_size][head_dim], the block's mean included
};
void ReadRun(const ReadRunArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_STORED_RUN_H_
