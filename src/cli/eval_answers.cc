#include "cli/eval_answers.h"

#include <fmt/format.h>

#include <utility>

namespace turboquant::cli {

std::string AnswersText(const std::vector<FreeRunningResult>& results, size_t num_prompts) {
  std::string text = fmt::format(
      "greedy answers to {} prompts against the f32 cache's; tokens to the first difference; "
      "BLEU-4 and ROUGE-L F1 on tokens\n"
      "{:<44}{:>7}{:>9}{:>9}{:>11}{:>10}{:>8}{:>9}\n",
      num_prompts, "kv cache", "bits", "median", "mean", "identical", "edits", "BLEU", "ROUGE-L");
  for (const FreeRunningResult& result : results) {
    text += fmt::format("{:<44}{:>7.3f}{:>9.1f}{:>9.1f}{:>11}{:>10.3f}{:>8.2f}{:>9.3f}\n",
                        &result == results.data() ? "f32 once more" : result.kv_cache_dtype,
                        result.bits_per_value, result.median_first_difference,
                        result.mean_first_difference, result.num_identical,
                        result.mean_edit_distance, result.bleu, result.rouge_l);
  }
  return text;
}

nlohmann::ordered_json AnswersJson(const std::vector<FreeRunningResult>& results, int max_tokens) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const FreeRunningResult& result : results) {
    rows.push_back({{"kv_cache_dtype", result.kv_cache_dtype},
                    {"control", &result == results.data()},
                    {"bits_per_value", result.bits_per_value},
                    {"first_difference", result.first_difference},
                    {"median_first_difference", result.median_first_difference},
                    {"mean_first_difference", result.mean_first_difference},
                    {"identical", result.num_identical},
                    {"mean_edit_distance", result.mean_edit_distance},
                    {"bleu", result.bleu},
                    {"rouge_l_f1", result.rouge_l}});
  }
  return {{"max_tokens", max_tokens}, {"results", std::move(rows)}};
}

}  // namespace turboquant::cli
