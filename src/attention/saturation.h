// How well the ranges of a cache fit what is stored: counted when blocks close, per layer and head.
// Dynamic scales fit by construction; static ones are watched.
#ifndef TURBOQUANT_ATTENTION_SATURATION_H_
#define TURBOQUANT_ATTENTION_SATURATION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/kv_cache_spec.h"

namespace turboquant {

struct SaturationCounts {
  struct Side {                             // each [num_kv_heads]
    std::vector<int64_t> end_codes;         // codes at the ends of the range
    std::vector<int64_t> corrected_blocks;  // (codec/block_scale.h)
    std::vector<float> reach;               // the largest of all blocks; 0 without static scales
  };
  struct Layer {
    Side k, v;
    std::vector<int64_t> num_codes, num_blocks;  // [num_kv_heads], per side
    const Side& Of(KvSide side) const { return side == KvSide::kKey ? k : v; }
  };
  std::vector<Layer> layers;
};

// For PagedAttention.
SaturationCounts ZeroCounts(std::span<const KvCacheSpec> layers);

// Codes at the ends of the range of one side, as a share of all; 0 where nothing is stored.
double EndCodeShare(const SaturationCounts& counts, KvSide side);
int64_t NumCorrectedBlocks(const SaturationCounts& counts, KvSide side);
// Blocks closed so far, times KV heads, over all layers.
int64_t NumBlocks(const SaturationCounts& counts);

// What is wrong with the static scales of a cache, one line per kind of finding with its worst
// place; empty where they fit, or there are none:
//   too small   values of a head reached more than kMostReach times its range, so that blocks had
//   to
//               be corrected; or (fixed scales) it has more end codes than kEndCodeAlarm. A range
//               that was clipped on purpose is corrected in some blocks and stays below that.
//   too large   after kBlocksToJudge blocks a head has never reached kLeastReach of its range
//   exchanged   after as many, one head of a layer's side reaches beyond its range, another one
//   less
//               than kSoundReach of its own, and the first kMostUnlike times as far in it: so it
//               looks where two heads have each other's range
// All are named by layer and head: a table for other values than these (another text, another
// layout of heads) shows as one or more of them.
inline constexpr double kEndCodeAlarm = 3e-3;
inline constexpr float kMostReach = 2.0f, kLeastReach = 0.4f;
// kMostUnlike: tables of prose, dialogue and code on each other's values come to 2.1.
inline constexpr float kSoundReach = 0.8f, kMostUnlike = 2.4f;
inline constexpr int64_t kBlocksToJudge = 8;
std::vector<std::string> SaturationWarnings(const SaturationCounts& counts,
                                            std::span<const KvCacheSpec> layers);

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_SATURATION_H_
