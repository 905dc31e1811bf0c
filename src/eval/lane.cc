#include "eval/lane.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "planner/host.h"

namespace turboquant {

void Lane::Restart() {
  if (sequence.value >= 0) runner->cache().Free(sequence);
  sequence = *runner->cache().AddSequence();
}

std::span<const float> Lane::Feed(std::span<const int32_t> chunk, StepInput::Logits logits) {
  CHECK(runner->cache().AllocateSlots(sequence, static_cast<int>(chunk.size())));
  // Without logits the last layer attends to nothing, and eviction goes by what it attends to.
  if (eviction && logits == StepInput::Logits::kNone) logits = StepInput::Logits::kLast;
  const StepInput input{sequence, chunk, logits};
  return runner->Execute({&input, 1});
}

std::span<const float> Lane::FeedPrompt(std::span<const int32_t> tokens) {
  std::span<const float> logits;
  for (size_t at = 0; at < tokens.size(); at += kLaneChunkTokens) {
    const auto count = std::min<size_t>(kLaneChunkTokens, tokens.size() - at);
    logits = Feed(tokens.subspan(at, count), StepInput::Logits::kLast);
  }
  return logits;
}

double Lane::EffectiveBits(int num_tokens) const {
  if (recipe.at_once) return recipe.bits_per_value;
  int closed = num_tokens / runner->cache().block_size();
  if (eviction) closed = std::min(closed, eviction->rule().num_blocks);
  const double bytes = static_cast<double>(closed) * static_cast<double>(plan.block_bytes) +
                       static_cast<double>(plan.sequence_bytes);
  const double values =
      static_cast<double>(num_tokens) * static_cast<double>(plan.f16_bytes_per_token) / 2;
  return 8 * bytes / values;
}

int32_t Likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

bool IsRecipe(const EvaluationCandidate& candidate) {
  return candidate.kv_cache_dtype.starts_with(kRecipePrefix);
}

namespace {

// The cache of a candidate; static scales are filled in later.
Result<CachePlan> PlanCandidate(const Model& model, const EvaluationCandidate& candidate,
                                const EvaluationOptions& options) {
  CachePlanOptions cache = options.cache;
  cache.kv_cache_dtype = candidate.kv_cache_dtype;
  cache.kv_scale_granularity = candidate.kv_scale_granularity;
  cache.kv_transform = candidate.kv_transform;
  cache.num_recent_tokens = candidate.kv_recent_tokens;
  if (!candidate.kv_cache_dtype_layers.empty()) {
    cache.kv_cache_dtype_layers = candidate.kv_cache_dtype_layers;
  }
  cache.max_num_seqs = options.sequences;
  cache.max_model_len = options.context;
  TQ_ASSIGN_OR_RETURN(const uint64_t usable, UsableMemoryBytes());
  return PlanCache(model.config(), cache, {usable, model.weight_bytes()});
}

// f32 in every layer, whatever the options say of single layers.
Result<CachePlan> PlanReference(const Model& model, const EvaluationOptions& options) {
  EvaluationOptions plain = options;
  plain.cache.kv_cache_dtype_layers.clear();
  return PlanCandidate(model, {"f32", ""}, plain);
}

Result<Lane> MakeLane(const std::shared_ptr<const Model>& model, CachePlan plan,
                      const EvaluationOptions& options) {
  Lane lane;
  lane.plan = std::move(plan);
  TQ_ASSIGN_OR_RETURN(lane.runner, ModelRunner::Create(model, {.cache = lane.plan.config,
                                                               .num_threads = options.num_threads,
                                                               .max_batch_tokens = kLaneChunkTokens,
                                                               .max_context = options.context,
                                                               .isa = options.isa}));
  return lane;
}

// Makes the recipe and lets the lane's plan count the bytes that its codes would take.
Status TakeRecipe(const Model& model, std::string_view name, const EvaluationOptions& options,
                  Lane* lane) {
  TQ_ASSIGN_OR_RETURN(lane->recipe,
                      MakeRecipe(name, model.config().head_dim, options.cache.block_size,
                                 options.cache.num_sink_tokens));
  TQ_ASSIGN_OR_RETURN(const CachePlan coded, PlanCandidate(model, {"int8", ""}, options));
  CachePlan& plan = lane->plan;
  plan.bits_per_value = lane->recipe.bits_per_value;
  plan.block_bytes =
      static_cast<uint64_t>(plan.bits_per_value / 16 *
                            static_cast<double>(coded.f16_bytes_per_token *
                                                static_cast<uint64_t>(options.cache.block_size)));
  plan.sequence_bytes = coded.sequence_bytes;
  return {};
}

// A recipe rounds what a cache of f32 stores.
Result<Lane> MakeRecipeLane(const std::shared_ptr<const Model>& model,
                            const EvaluationCandidate& candidate,
                            const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanReference(*model, options));
  TQ_ASSIGN_OR_RETURN(Lane lane, MakeLane(model, std::move(plan), options));
  TQ_RETURN_IF_ERROR(TakeRecipe(*model, candidate.kv_cache_dtype, options, &lane));
  lane.plan.formats = lane.recipe.name;
  lane.runner->attention().set_recipe(lane.recipe.rounding.get());
  return lane;
}

// Evicted blocks are gone; exact values of the others count as f16.
Result<Lane> MakeEvictionLane(const std::shared_ptr<const Model>& model,
                              const EvaluationCandidate& candidate,
                              const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(EvictionRule rule,
                      ParseEvictionRule(candidate.kv_cache_dtype, options.cache.block_size));
  if (options.sequences > 1 || model->config().sliding_window > 0) {
    return Fail(ErrorCode::kUnsupported, "'{}': one sequence at a time, without a sliding window",
                candidate.kv_cache_dtype);
  }
  EvaluationOptions plain = options;
  plain.cache.kv_cache_dtype_layers.clear();
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanCandidate(*model, {"f16", ""}, plain));
  TQ_ASSIGN_OR_RETURN(Lane lane, MakeLane(model, std::move(plan), options));
  if (!rule.recipe.empty()) TQ_RETURN_IF_ERROR(TakeRecipe(*model, rule.recipe, options, &lane));
  if (lane.recipe.at_once) {
    return Fail(ErrorCode::kUnsupported, "'{}': a recipe that rounds blocks, not tokens",
                candidate.kv_cache_dtype);
  }
  lane.plan.formats = candidate.kv_cache_dtype;
  lane.eviction =
      std::make_unique<EvictingAttention>(lane.plan.config.layers, model->AttentionParams(),
                                          std::move(rule), lane.recipe.rounding.get());
  lane.runner->attention().set_stand_in(lane.eviction.get());
  return lane;
}

// At the model's own temperature.
Result<Lane> MakePlainLane(const std::shared_ptr<const Model>& model,
                           const EvaluationCandidate& candidate, const EvaluationOptions& options) {
  if (IsEviction(candidate.kv_cache_dtype)) return MakeEvictionLane(model, candidate, options);
  if (IsRecipe(candidate)) return MakeRecipeLane(model, candidate, options);
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanCandidate(*model, candidate, options));
  return MakeLane(model, std::move(plan), options);
}

}  // namespace

Result<Lane> MakeReferenceLane(const std::shared_ptr<const Model>& model,
                               const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanReference(*model, options));
  return MakeLane(model, std::move(plan), options);
}

Result<Lane> MakeCandidateLane(const std::shared_ptr<const Model>& model,
                               const EvaluationCandidate& candidate,
                               const EvaluationOptions& options) {
  const double temperature = candidate.softmax_temperature;
  if (temperature != 1 && IsEviction(candidate.kv_cache_dtype)) {
    return Fail(ErrorCode::kUnsupported, "'{}': only at temperature 1", candidate.kv_cache_dtype);
  }
  TQ_ASSIGN_OR_RETURN(Lane lane, MakePlainLane(model, candidate, options));
  if (temperature == 1) return lane;
  lane.runner->attention().ScaleScores(static_cast<float>(1 / temperature));
  lane.plan.formats += fmt::format(", temperature {}", temperature);
  return lane;
}

}  // namespace turboquant
