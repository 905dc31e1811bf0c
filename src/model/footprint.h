// What a model takes in memory beside its KV cache, from the header of its file: the same placement
// of weights and the same graphs as when it runs, with nothing read and nothing allocated but
// descriptions.
#ifndef TURBOQUANT_MODEL_FOOTPRINT_H_
#define TURBOQUANT_MODEL_FOOTPRINT_H_

#include <cstdint>

#include "model/gguf.h"
#include "model/model.h"
#include "model/weights.h"

namespace turboquant {

// Graphs of few rows (decode) are kept, the least recently used one going first. All larger ones
// share one place and one buffer: building one anew costs 0.2 to 0.5 ms
// (docs/decisions/003-graphs-and-weights.md), which a step of that many rows does not notice, while
// each would hold buffers of its own.
inline constexpr int kMaxKeptRows = 32;
inline constexpr int kMaxKeptGraphs = 16;

struct FootprintOptions {
  WeightMode weights = WeightMode::kFile;
  int max_batch_tokens = 512;  // rows of the largest step
  int num_threads = 1;
};

struct ModelFootprint {
  WeightBytes weights;
  uint64_t step_bytes = 0;    // graph of the largest step, and ggml's scratch
  uint64_t kept_bytes = 0;    // the most that graphs kept for small steps can come to
  uint64_t logits_bytes = 0;  // [max_num_seqs][vocab_size] f32
};

// `file` must have passed ReadHyperparameters (which gave `config`) and CheckTensors.
ModelFootprint MeasureFootprint(const Gguf& file, const ModelConfig& config,
                                const FootprintOptions& options);

// The same of a model that is loaded already.
ModelFootprint MeasureFootprint(const Model& model, const FootprintOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_FOOTPRINT_H_
