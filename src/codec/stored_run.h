// Reads one side of a stored run back: what attention takes the codes for. Plain code, for tests
// and measurements.
#ifndef TURBOQUANT_CODEC_STORED_RUN_H_
#define TURBOQUANT_CODEC_STORED_RUN_H_

#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

struct ReadRunArgs {
  const KvCacheSpec* spec;
  const KvBlockLayout* layout;  // of spec
  KvSide side;
  const uint8_t* run;        // of one KV head in a closed block
  HeadScales static_scales;  // read for static granularities only; without the block's correction
  float* x;                  // out: [block_size][head_dim], the block's mean included
};
void ReadRun(const ReadRunArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_STORED_RUN_H_
