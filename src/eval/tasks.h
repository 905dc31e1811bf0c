// Tasks with a right answer: how many a model gets right with its f32 cache and with a candidate's.
//
// choice: every choice is scored by the log-likelihood of its tokens behind the prompt, per byte of
// its text; the item is right where the right choice beats all others. Per byte, because choices
// differ in length and a measure per token would hang on the vocabulary: the `acc_norm` of the
// usual harness (EleutherAI/lm-evaluation-harness, which divides by characters; the same in ASCII).
// exact: a greedy answer up to the end of its first line that is not blank (or the token that ends
// generation), trimmed, equals the expected text byte by byte.
#ifndef TURBOQUANT_EVAL_TASKS_H_
#define TURBOQUANT_EVAL_TASKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/evaluation.h"
#include "eval/task_file.h"
#include "model/model.h"

namespace turboquant {

struct TaskTokens {
  std::vector<int32_t> prompt;  // read once; what all choices have in common with it
  // One per choice, never empty: what follows, scored.
  std::vector<std::vector<int32_t>> continuations;
};
struct TaskSet {
  std::vector<TaskItem> items;
  std::vector<TaskTokens> tokens;  // by item
  int context = 0;                 // tokens of the longest item with its answer
};
// kInvalidArgument: an item's prompt holds no token. kUnsupported: a conversation, and no template.
Result<TaskSet> PrepareTasks(const Model& model, std::vector<TaskItem> items);

struct TaskAnswers {
  std::string kv_cache_dtype;
  double bits_per_value = 0;
  std::vector<bool> right;  // by item
  // Items whose prompt fills no block: nothing that they read had been quantized, or little.
  int num_short = 0;
};
// One cache through all items; candidate: null for the reference (f32 in every layer). Of options:
// cache, threads, ISA, stop and progress (in items). kInterrupted on stop.
Result<TaskAnswers> AnswerTasks(const std::shared_ptr<const Model>& model, const TaskSet& tasks,
                                const EvaluationCandidate* candidate,
                                const EvaluationOptions& options);

struct TaskScore {
  int num_items = 0, num_right = 0;
  double accuracy = 0, standard_error = 0;  // shares; the error is that of a mean over items
};
struct TaskComparison {
  std::string kv_cache_dtype;
  double bits_per_value = 0;
  TaskScore reference, candidate;
  TaskScore reference_by_kind[2], candidate_by_kind[2];  // by TaskKind
  // Accuracy lost, a share, and its standard error over the items' differences (both caches answer
  // the same items: their errors are not independent).
  double loss = 0, loss_standard_error = 0;
  std::vector<int> lost, gained;  // items whose verdict changed
};
TaskComparison CompareTasks(const TaskSet& tasks, const TaskAnswers& reference,
                            const TaskAnswers& candidate);

// What an answer of an "exact" item is so far: wrong as soon as it cannot become right.
enum class AnswerState : uint8_t { kOpen, kRight, kWrong };
// text: generated so far; ended: nothing follows.
AnswerState JudgeAnswer(std::string_view text, std::string_view expected, bool ended);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_TASKS_H_
