#include "eval/free_running.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "eval/answer_scores.h"
#include "eval/lane.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

using Tokens = std::vector<int32_t>;

// The greedy answer to one prompt; ends before a token that ends generation.
Tokens Answer(const Model& model, const Tokens& prompt, int max_tokens, Lane* lane) {
  lane->Restart();
  std::span<const float> logits = lane->FeedPrompt(prompt);
  Tokens answer;
  for (;;) {
    const int32_t token = Likeliest(logits);
    if (model.tokenizer().IsEndOfGeneration(token)) return answer;
    answer.push_back(token);
    if (static_cast<int>(answer.size()) == max_tokens) return answer;
    logits = lane->Feed(std::span(&token, 1), StepInput::Logits::kLast);
  }
}

double Median(std::vector<int> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

FreeRunningResult Compare(const Lane& lane, const std::vector<Tokens>& expected,
                          const std::vector<Tokens>& found) {
  FreeRunningResult result;
  result.kv_cache_dtype = lane.plan.formats;
  result.bits_per_value = lane.plan.bits_per_value;
  double distance = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto parted = std::ranges::mismatch(expected[i], found[i]);
    result.first_difference.push_back(static_cast<int>(parted.in1 - expected[i].begin()));
    result.num_identical += expected[i] == found[i] ? 1 : 0;
    const size_t longer = std::max(expected[i].size(), found[i].size());
    if (longer > 0) {
      distance += EditDistance(expected[i], found[i]) / static_cast<double>(longer);
    }
  }
  const auto count = static_cast<double>(expected.size());
  result.median_first_difference = Median(result.first_difference);
  result.mean_first_difference =
      std::accumulate(result.first_difference.begin(), result.first_difference.end(), 0.0) / count;
  result.mean_edit_distance = distance / count;
  result.bleu = CorpusBleu(expected, found);
  result.rouge_l = MeanRougeL(expected, found);
  return result;
}

// Answers to all prompts, with progress.
class Runner {
 public:
  Runner(const Model& model, const std::vector<Tokens>& prompts, const FreeRunningOptions& options,
         size_t num_lanes)
      : model_(model),
        prompts_(prompts),
        options_(options),
        total_(static_cast<int64_t>(prompts.size() * num_lanes)) {}

  Result<std::vector<Tokens>> Answers(Lane* lane) {
    std::vector<Tokens> answers;
    const EvaluationOptions& evaluation = options_.evaluation;
    for (const Tokens& prompt : prompts_) {
      if (evaluation.stop != nullptr && evaluation.stop->load()) {
        return Fail(ErrorCode::kInterrupted, "eval: interrupted after {} of {} answers", done_,
                    total_);
      }
      answers.push_back(Answer(model_, prompt, options_.max_tokens, lane));
      if (evaluation.progress) evaluation.progress(++done_, total_);
    }
    return answers;
  }

 private:
  const Model& model_;
  const std::vector<Tokens>& prompts_;
  const FreeRunningOptions& options_;
  int64_t total_, done_ = 0;
};

}  // namespace

int EditDistance(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int> row(b.size() + 1);  // distances of a prefix of a to all prefixes of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

Result<std::vector<FreeRunningResult>> RunFree(const std::shared_ptr<const Model>& model,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               const FreeRunningOptions& options) {
  if (prompts.empty() || std::ranges::any_of(prompts, &Tokens::empty)) {
    return Fail(ErrorCode::kInvalidArgument, "eval: {} prompts: want some, none of them empty",
                prompts.size());
  }
  EvaluationOptions evaluation = options.evaluation;
  evaluation.context =
      static_cast<int>(std::ranges::max(prompts, {}, &Tokens::size).size()) + options.max_tokens;
  std::vector<Lane> lanes;
  TQ_ASSIGN_OR_RETURN(Lane reference, MakeReferenceLane(model, evaluation));
  TQ_ASSIGN_OR_RETURN(Lane control, MakeReferenceLane(model, evaluation));
  lanes.push_back(std::move(control));
  for (const EvaluationCandidate& candidate : evaluation.candidates) {
    TQ_ASSIGN_OR_RETURN(Lane lane, MakeCandidateLane(model, candidate, evaluation));
    lanes.push_back(std::move(lane));
  }
  Runner runner(*model, prompts, options, lanes.size() + 1);
  TQ_ASSIGN_OR_RETURN(const std::vector<Tokens> expected, runner.Answers(&reference));
  std::vector<FreeRunningResult> results;
  for (Lane& lane : lanes) {
    TQ_ASSIGN_OR_RETURN(const std::vector<Tokens> found, runner.Answers(&lane));
    results.push_back(Compare(lane, expected, found));
  }
  return results;
}

}  // namespace turboquant
