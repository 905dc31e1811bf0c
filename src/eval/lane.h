// What an evaluation runs side by side: a runner of the model with a cache of its own and one
// sequence.
#ifndef TURBOQUANT_EVAL_LANE_H_
#define TURBOQUANT_EVAL_LANE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "engine/model_runner.h"
#include "eval/evaluation.h"
#include "eval/eviction.h"
#include "eval/recipes.h"
#include "planner/cache_plan.h"

namespace turboquant {

// Tokens of a step at most: its logits are held for the reference and one candidate at a time.
inline constexpr int kLaneChunkTokens = 128;

struct Lane {
  std::unique_ptr<ModelRunner> runner;
  CachePlan plan;
  Recipe recipe;  // rounding is null where the plan's own formats are measured
  std::unique_ptr<EvictingAttention> eviction;  // null: every block is kept
  SequenceId sequence;

  // Begins a new sequence.
  void Restart();
  // At most kLaneChunkTokens; logits as ModelRunner::Execute gives them.
  std::span<const float> Feed(std::span<const int32_t> chunk, StepInput::Logits logits);
  // As many as there are, at least one; logits of the last.
  std::span<const float> FeedPrompt(std::span<const int32_t> tokens);
  // Bits held per value with num_tokens in the cache: closed blocks that are kept, and the whole of
  // tail, sinks and recent copies.
  double EffectiveBits(int num_tokens) const;
};

// The first of the largest.
int32_t Likeliest(std::span<const float> logits);

bool IsRecipe(const EvaluationCandidate& candidate);

// Of options: cache, context, sequences, threads and ISA. Static scales come from
// options.cache.calibration.
Result<Lane> MakeCandidateLane(const std::shared_ptr<const Model>& model,
                               const EvaluationCandidate& candidate,
                               const EvaluationOptions& options);
// f32 in every layer, whatever the options say of single layers.
Result<Lane> MakeReferenceLane(const std::shared_ptr<const Model>& model,
                               const EvaluationOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_LANE_H_
