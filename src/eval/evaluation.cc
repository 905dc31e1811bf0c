#include "eval/evaluation.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "base/check.h"
#include "eval/lane.h"
#include "eval/observation.h"
#include "model/tokenizer.h"
#include "planner/host.h"

namespace turboquant {
namespace {

constexpr int kNumBuckets = 4;

// A lane and what was found of it.
struct ScoredLane : Lane {
  std::vector<TokenDivergence> tokens;  // of the scored positions, window by window
  double bits_sum = 0;
  std::shared_ptr<KvErrors> errors;  // null: not collected

  void CollectErrors() {
    errors = std::make_shared<KvErrors>(plan.config.layers);
    runner->attention().set_observer(errors.get());
    runner->attention().set_block_observer(errors.get());
  }
};

bool Stopped(const EvaluationOptions& options) {
  return options.stop != nullptr && options.stop->load();
}

bool IsCalibratedPlan(const CachePlan& plan) {
  return std::ranges::any_of(plan.config.layers,
                             [](const KvCacheSpec& spec) { return IsCalibrated(spec.k, spec.v); });
}

// Formats of single layers have no static scales.
Result<bool> NeedsCalibration(const std::vector<EvaluationCandidate>& candidates) {
  for (const EvaluationCandidate& candidate : candidates) {
    if (IsRecipe(candidate)) continue;
    TQ_ASSIGN_OR_RETURN(const KvSidePair sides,
                        ParseKvFormat(candidate.kv_cache_dtype, candidate.kv_scale_granularity,
                                      candidate.kv_transform, nullptr));
    if (IsCalibrated(sides.k, sides.v)) return true;
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
              std::vector<ScoredLane>* lanes) {
  const std::span<const int32_t> chunk =
      window.subspan(static_cast<size_t>(from), static_cast<size_t>(count));
  // The last position of a window has no next token.
  const int scored_end = std::min(from + count, static_cast<int>(window.size()) - 1);
  const bool scored = scored_end > options.first_scored;
  const auto wanted = scored ? StepInput::Logits::kAll : StepInput::Logits::kNone;
  const std::span<const float> expected = reference->Feed(chunk, wanted);
  for (ScoredLane& lane : *lanes) {
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

// The positions with the largest KL.
std::vector<WorstToken> FindWorst(const std::vector<TokenDivergence>& tokens,
                                  const EvaluationOptions& options) {
  constexpr size_t kWorst = 10;
  const auto per_window = static_cast<size_t>(options.context - 1 - options.first_scored);
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count = std::min(kWorst, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count),
                            std::greater{}, [&](size_t i) { return tokens[i].kl; });
  std::vector<WorstToken> worst;
  for (const size_t i : std::span(order).first(count)) {
    worst.push_back({.window = static_cast<int>(i / per_window),
                     .position = options.first_scored + static_cast<int>(i % per_window),
                     .divergence = tokens[i]});
  }
  return worst;
}

EvaluationResult Finish(ScoredLane& lane, const EvaluationOptions& options) {
  EvaluationResult result;
  result.kv_cache_dtype = lane.plan.formats;
  result.divergence = Summarize(lane.tokens);
  result.buckets = MakeBuckets(lane.tokens, options.first_scored, options.context - 1);
  result.bits_per_value = lane.plan.bits_per_value;
  result.effective_bits = lane.bits_sum / static_cast<double>(lane.tokens.size());
  result.saturation = lane.runner->attention().saturation();
  result.saturation_warnings = SaturationWarnings(result.saturation, lane.plan.config.layers);
  result.worst = FindWorst(lane.tokens, options);
  result.errors = std::move(lane.errors);
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
                  std::vector<ScoredLane>* lanes) {
  const auto lane_count = static_cast<int64_t>(lanes->size()) + 1;
  const int64_t total = static_cast<int64_t>(windows.size()) * options.context * lane_count;
  int64_t done = 0;
  for (const std::vector<int32_t>& window : windows) {
    reference->Restart();
    for (ScoredLane& lane : *lanes) lane.Restart();
    for (int from = 0; from < options.context; from += kLaneChunkTokens) {
      if (Stopped(options)) {
        return Fail(ErrorCode::kInterrupted, "eval: interrupted after {} of {} tokens", done,
                    total);
      }
      const int count = std::min(kLaneChunkTokens, options.context - from);
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
  TQ_ASSIGN_OR_RETURN(Lane reference, MakeReferenceLane(model, options));
  std::vector<ScoredLane> lanes;
  for (const EvaluationCandidate& candidate : options.candidates) {
    TQ_ASSIGN_OR_RETURN(Lane lane, MakeCandidateLane(model, candidate, calibrated));
    lanes.push_back({std::move(lane), {}, 0, nullptr});
    // A recipe rounds before the cache sees anything.
    if (options.collect_errors && !IsRecipe(candidate)) lanes.back().CollectErrors();
  }
  TQ_RETURN_IF_ERROR(RunWindows(windows, options, model->config().vocab_size, &reference, &lanes));
  std::vector<EvaluationResult> results;
  for (ScoredLane& lane : lanes) {
    results.push_back(Finish(lane, options));
    if (IsCalibratedPlan(lane.plan)) {
      const CalibrationTable& table = *calibrated.cache.calibration;
      results.back().calibration =
          fmt::format("{} over {} tokens", table.clip_rule, table.num_tokens);
    }
  }
  return results;
}

}  // namespace turboquant
