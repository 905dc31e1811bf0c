// What a cache format costs in quality: the model against itself, with the full-precision cache
// (f32) as reference and the candidates beside it in lock-step over the same text. Logits are f32
// and never stored.
#ifndef TURBOQUANT_EVAL_EVALUATION_H_
#define TURBOQUANT_EVAL_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/paged_attention.h"
#include "base/error.h"
#include "eval/divergence.h"
#include "eval/kv_errors.h"
#include "model/model.h"
#include "planner/cache_plan.h"

namespace turboquant {

struct EvaluationCandidate {
  std::string kv_cache_dtype;        // as the flags, or a recipe (recipes.h, eviction.h)
  std::string kv_scale_granularity;  // empty = the format's default
  std::string kv_transform = {};     // empty = the format's default
  int kv_recent_tokens = 0;
  std::string kv_cache_dtype_layers = {};  // empty = those of EvaluationOptions::cache
  // All scores are divided by it before the softmax. 1 is the model's own; others are for
  // measurements, nothing serves with them.
  double softmax_temperature = 1;
};

struct EvaluationOptions {
  std::vector<EvaluationCandidate> candidates;
  CachePlanOptions cache;  // everything but format and granularity
  int context = 2048;      // tokens of a window
  int sequences = 1;       // alive at a time in each cache
  // Positions before this are computed but not scored: little of their past is quantized.
  int first_scored = 512;
  ClipRule clip_rule;           // of static scales from the calibration text
  bool collect_errors = false;  // of keys and values: EvaluationResult::errors
  int num_threads = 1;
  std::string isa;
  const std::atomic<bool>* stop = nullptr;
  // Called with tokens through all caches; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct LengthBucket {
  int begin = 0, end = 0;  // positions
  DivergenceSummary divergence;
};

// A position where the candidate is far from the reference.
struct WorstToken {
  int window = 0, position = 0;  // the token at position + 1 is predicted
  TokenDivergence divergence;
};

struct EvaluationResult {
  std::string kv_cache_dtype;  // "int8/int8 per_token_head rotated"
  DivergenceSummary divergence;
  std::vector<LengthBucket> buckets;
  double bits_per_value = 0;
  double effective_bits = 0;    // bytes held with tail and sinks, mean over the scored positions
  SaturationCounts saturation;  // by layer and head
  std::vector<std::string> saturation_warnings;
  std::vector<WorstToken> worst;           // ten at most, the largest KL first
  std::shared_ptr<const KvErrors> errors;  // null: not collected
  std::string calibration;                 // "" or what static scales came from
};

// Cuts `text` into windows of options.context tokens, evenly spaced, each beginning with BOS where
// the model wants one. kInvalidArgument where the text is too short.
Result<std::vector<std::vector<int32_t>>> MakeWindows(const Model& model, const std::string& text,
                                                      int num_windows, int context);

// Runs every window through the reference and all candidates. `calibration`: text that static
// granularities take their scales from; where it is empty they come from options.cache.calibration,
// and without that a candidate that needs them is an error. kInterrupted on stop.
Result<std::vector<EvaluationResult>> Evaluate(std::shared_ptr<const Model> model,
                                               const std::vector<std::vector<int32_t>>& windows,
                                               const std::vector<int32_t>& calibration,
                                               const EvaluationOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_EVALUATION_H_
