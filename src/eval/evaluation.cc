#include "eval/evaluation.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "engine/model_runner.h"
#include "eval/observation.h"
#include "eval/recipes.h"
#include "model/tokenizer.h"
#include "planner/host.h"

namespace turboquant {
namespace {

constexpr int kChunkTokens =
    128;  // logits of one chunk are held for the reference and one candidate at a time
constexpr int kNumBuckets = 4;

// A runner with one sequence.
struct Lane {
  std::unique_ptr<ModelRunner> runner;
  CachePlan plan;
  Recipe recipe;  // rounding is null where the plan's own formats are measured
  SequenceId sequence;
  std::vector<TokenDivergence> tokens;  // of the scored positions, window by window
  double bits_sum = 0;

  void Restart() {
    if (sequence.value >= 0) runner->cache().Free(sequence);
    sequence = *runner->cache().AddSequence();
  }
  std::span<const float> Feed(std::span<const int32_t> chunk, StepInput::Logits logits) {
    CHECK(runner->cache().AllocateSlots(sequence, static_cast<int>(chunk.size())));
    const StepInput input{sequence, chunk, logits};
    return runner->Execute({&input, 1});
  }
  // Bits held per value with num_tokens in the cache: closed blocks, and the whole of tail, sinks
  // and recent copies.
  double EffectiveBits(int num_tokens) const {
    if (recipe.at_once) return recipe.bits_per_value;
    const int closed = num_tokens / runner->cache().block_size();
    const double bytes = static_cast<double>(closed) * static_cast<double>(plan.block_bytes) +
                         static_cast<double>(plan.sequence_bytes);
    const double values =
        static_cast<double>(num_tokens) * static_cast<double>(plan.f16_bytes_per_token) / 2;
    return 8 * bytes / values;
  }
};

bool IsRecipe(const EvaluationCandidate& candidate) {
  return candidate.kv_cache_dtype.starts_with(kRecipePrefix);
}

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
  cache.max_num_seqs = 1;
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
                                                               .max_batch_tokens = kChunkTokens,
                                                               .max_context = options.context,
                                                               .isa = options.isa}));
  return lane;
}

// A recipe rounds what a cache of f32 stores. The plan counts the bytes that it would take.
Result<Lane> MakeRecipeLane(const std::shared_ptr<const Model>& model,
                            const EvaluationCandidate& candidate,
                            const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(Recipe recipe,
                      MakeRecipe(candidate.kv_cache_dtype, model->config().head_dim,
                                 options.cache.block_size, options.cache.num_sink_tokens));
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanReference(*model, options));
  TQ_ASSIGN_OR_RETURN(const CachePlan coded, PlanCandidate(*model, {"int8", ""}, options));
  TQ_ASSIGN_OR_RETURN(Lane lane, MakeLane(model, std::move(plan), options));
  lane.plan.formats = recipe.name;
  lane.plan.bits_per_value = recipe.bits_per_value;
  lane.plan.block_bytes =
      static_cast<uint64_t>(recipe.bits_per_value / 16 *
                            static_cast<double>(coded.f16_bytes_per_token *
                                                static_cast<uint64_t>(options.cache.block_size)));
  lane.plan.sequence_bytes = coded.sequence_bytes;
  lane.recipe = std::move(recipe);
  lane.runner->attention().set_recipe(lane.recipe.rounding.get());
  return lane;
}

Result<Lane> MakeCandidateLane(const std::shared_ptr<const Model>& model,
                               const EvaluationCandidate& candidate,
                               const EvaluationOptions& options) {
  if (IsRecipe(candidate)) return MakeRecipeLane(model, candidate, options);
  TQ_ASSIGN_OR_RETURN(CachePlan plan, PlanCandidate(*model, candidate, options));
  return MakeLane(model, std::move(plan), options);
}

bool Stopped(const EvaluationOptions& options) {
  return options.stop != nullptr && options.stop->load();
}

bool NeedsStaticScales(const CachePlan& plan) {
  return std::ranges::any_of(plan.config.layers, [](const KvCacheSpec& spec) {
    return IsStatic(spec.k.granularity) || IsStatic(spec.v.granularity);
  });
}

// Formats of single layers have no static scales.
Result<bool> NeedsCalibration(const std::vector<EvaluationCandidate>& candidates) {
  for (const EvaluationCandidate& candidate : candidates) {
    if (IsRecipe(candidate)) continue;
    TQ_ASSIGN_OR_RETURN(const KvSidePair sides,
                        ParseKvFormat(candidate.kv_cache_dtype, candidate.kv_scale_granularity,
                                      candidate.kv_transform, nullptr));
    if (IsStatic(sides.k.granularity) || IsStatic(sides.v.granularity)) return true;
  }
  return false;
}

// The table of the calibration text where a candidate needs it, or the one that was given.
Result<std::shared_ptr<const CalibrationTable>> Calibrate(const std::shared_ptr<const Model>& model,
                                                          const std::vector<int32_t>& calibration,
                                                          const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(const bool needed, NeedsCalibration(options.candidates));
  if (calibration.empty() || !needed) return options.cache.calibration;
  TQ_ASSIGN_OR_RETURN(const auto statistics, ObserveModel(model, {calibration},
                                                          {options.num_threads, options.isa,
                                                           options.stop, /*progress=*/{}}));
  return std::make_shared<const CalibrationTable>(
      MakeCalibrationTable(*statistics, options.clip_rule));
}

// One chunk through every lane; scores the candidates' logits against the reference's.
void RunChunk(std::span<const int32_t> window, int from, int count,
              const EvaluationOptions& options, int vocab_size, Lane* reference,
              std::vector<Lane>* lanes) {
  const std::span<const int32_t> chunk =
      window.subspan(static_cast<size_t>(from), static_cast<size_t>(count));
  // The last position of a window has no next token.
  const int scored_end = std::min(from + count, static_cast<int>(window.size()) - 1);
  const bool scored = scored_end > options.first_scored;
  const auto wanted = scored ? StepInput::Logits::kAll : StepInput::Logits::kNone;
  const std::span<const float> expected = reference->Feed(chunk, wanted);
  for (Lane& lane : *lanes) {
    const std::span<const float> found = lane.Feed(chunk, wanted);
    for (int position = std::max(from, options.first_scored); position < scored_end; ++position) {
      const size_t row = static_cast<size_t>(position - from) * static_cast<size_t>(vocab_size);
      lane.tokens.push_back(CompareLogits(expected.subspan(row, static_cast<size_t>(vocab_size)),
                                          found.subspan(row, static_cast<size_t>(vocab_size)),
                                          window[static_cast<size_t>(position) + 1]));
      lane.bits_sum += lane.EffectiveBits(position + 1);
    }
  }
}

// Tokens of all windows whose position lies in [begin, end).
std::vector<LengthBucket> MakeBuckets(const std::vector<TokenDivergence>& tokens, int first,
                                      int last) {
  const auto per_window = static_cast<size_t>(last - first);
  std::vector<LengthBucket> buckets;
  for (int i = 0; i < kNumBuckets; ++i) {
    const int begin = first + (last - first) * i / kNumBuckets,
              end = first + (last - first) * (i + 1) / kNumBuckets;
    std::vector<TokenDivergence> inside;
    for (size_t window = 0; window + per_window <= tokens.size(); window += per_window) {
      const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(window);
      inside.insert(inside.end(), at + (begin - first), at + (end - first));
    }
    buckets.push_back({begin, end, Summarize(inside)});
  }
  return buckets;
}

double EndCodeShare(const SaturationCounts& counts, KvSide side) {
  int64_t ends = 0, codes = 0;
  for (const SaturationCounts::Layer& layer : counts.layers) {
    const auto& end_codes = side == KvSide::kKey ? layer.k_end_codes : layer.v_end_codes;
    ends = std::accumulate(end_codes.begin(), end_codes.end(), ends);
    codes = std::accumulate(layer.num_codes.begin(), layer.num_codes.end(), codes);
  }
  return codes == 0 ? 0 : static_cast<double>(ends) / static_cast<double>(codes);
}

EvaluationResult Finish(Lane& lane, const EvaluationOptions& options) {
  EvaluationResult result;
  result.kv_cache_dtype = lane.plan.formats;
  result.divergence = Summarize(lane.tokens);
  result.buckets = MakeBuckets(lane.tokens, options.first_scored, options.context - 1);
  result.bits_per_value = lane.plan.bits_per_value;
  result.effective_bits = lane.bits_sum / static_cast<double>(lane.tokens.size());
  result.k_end_code_share = EndCodeShare(lane.runner->attention().saturation(), KvSide::kKey);
  result.v_end_code_share = EndCodeShare(lane.runner->attention().saturation(), KvSide::kValue);
  return result;
}

Status CheckOptions(const EvaluationOptions& options) {
  if (options.first_scored < 0 || options.first_scored >= options.context - 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "eval: scoring from position {} leaves nothing of a context of {} tokens",
                options.first_scored, options.context);
  }
  return {};
}

Status RunWindows(const std::vector<std::vector<int32_t>>& windows,
                  const EvaluationOptions& options, int vocab_size, Lane* reference,
                  std::vector<Lane>* lanes) {
  const auto lane_count = static_cast<int64_t>(lanes->size()) + 1;
  const int64_t total = static_cast<int64_t>(windows.size()) * options.context * lane_count;
  int64_t done = 0;
  for (const std::vector<int32_t>& window : windows) {
    reference->Restart();
    for (Lane& lane : *lanes) lane.Restart();
    for (int from = 0; from < options.context; from += kChunkTokens) {
      if (Stopped(options)) {
        return Fail(ErrorCode::kInterrupted, "eval: interrupted after {} of {} tokens", done,
                    total);
      }
      const int count = std::min(kChunkTokens, options.context - from);
      RunChunk(window, from, count, options, vocab_size, reference, lanes);
      done += count * lane_count;
      if (options.progress) options.progress(done, total);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::vector<int32_t>>> MakeWindows(const Model& model, const std::string& text,
                                                      int num_windows, int context) {
  const std::vector<int32_t> bos = model.tokenizer().Encode("", true, false);
  const std::vector<int32_t> tokens = model.tokenizer().Encode(text, false, false);
  const size_t body = static_cast<size_t>(context) - bos.size();
  const size_t needed = body * static_cast<size_t>(num_windows);
  if (tokens.size() < needed) {
    return Fail(ErrorCode::kInvalidArgument,
                "eval: the text has {} tokens; {} windows of {} need {}", tokens.size(),
                num_windows, context, needed);
  }
  const size_t stride = tokens.size() / static_cast<size_t>(num_windows);
  std::vector<std::vector<int32_t>> windows;
  for (size_t i = 0; i < static_cast<size_t>(num_windows); ++i) {
    std::vector<int32_t> window = bos;
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(i * stride);
    window.insert(window.end(), from, from + static_cast<std::ptrdiff_t>(body));
    windows.push_back(std::move(window));
  }
  return windows;
}

Result<std::vector<EvaluationResult>> Evaluate(std::shared_ptr<const Model> model,
                                               const std::vector<std::vector<int32_t>>& windows,
                                               const std::vector<int32_t>& calibration,
                                               const EvaluationOptions& options) {
  TQ_RETURN_IF_ERROR(CheckOptions(options));
  EvaluationOptions calibrated = options;
  TQ_ASSIGN_OR_RETURN(calibrated.cache.calibration, Calibrate(model, calibration, options));
  TQ_ASSIGN_OR_RETURN(CachePlan reference_plan, PlanReference(*model, options));
  TQ_ASSIGN_OR_RETURN(Lane reference, MakeLane(model, std::move(reference_plan), options));
  std::vector<Lane> lanes;
  for (const EvaluationCandidate& candidate : options.candidates) {
    TQ_ASSIGN_OR_RETURN(Lane lane, MakeCandidateLane(model, candidate, calibrated));
    lanes.push_back(std::move(lane));
  }
  TQ_RETURN_IF_ERROR(RunWindows(windows, options, model->config().vocab_size, &reference, &lanes));
  std::vector<EvaluationResult> results;
  for (Lane& lane : lanes) {
    results.push_back(Finish(lane, options));
    if (NeedsStaticScales(lane.plan)) {
      const CalibrationTable& table = *calibrated.cache.calibration;
      results.back().calibration =
          fmt::format("{} over {} tokens", table.clip_rule, table.num_tokens);
    }
  }
  return results;
}

}  // namespace turboquant
