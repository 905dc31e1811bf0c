// What a cache does to answers: each prompt answered greedily by the model with its f32 cache and
// with each candidate's, every one on its own tokens. Where answers part they go on differently, so
// the length to the first difference says more than what follows.
#ifndef TURBOQUANT_EVAL_FREE_RUNNING_H_
#define TURBOQUANT_EVAL_FREE_RUNNING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/evaluation.h"
#include "model/model.h"

namespace turboquant {

struct FreeRunningOptions {
  // Candidates, cache, threads, stop, progress (in prompts answered). Its context is what the
  // longest prompt and its answer need.
  EvaluationOptions evaluation;
  int max_tokens = 128;  // of an answer; it may end before
};

struct FreeRunningResult {
  std::string kv_cache_dtype;
  double bits_per_value = 0;
  std::vector<int> first_difference;  // by prompt: tokens that are the same from the start
  int num_identical = 0;              // whole answers
  double median_first_difference = 0, mean_first_difference = 0;
  // Least number of tokens to insert, delete or replace, over the longer answer's length; mean.
  double mean_edit_distance = 0;
  double bleu = 0, rouge_l = 0;  // on tokens, 0..100 and 0..1 (eval/answer_scores.h)
};

// The first result is the control: the reference's cache once more, which must not differ.
// kInvalidArgument: no prompts, or an empty one. kInterrupted on stop.
Result<std::vector<FreeRunningResult>> RunFree(const std::shared_ptr<const Model>& model,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               const FreeRunningOptions& options);

// Levenshtein distance of two token sequences.
int EditDistance(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_FREE_RUNNING_H_
