#include "eval/tasks.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"
#include "eval/divergence.h"
#include "eval/lane.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

using Tokens = std::vector<int32_t>;

// An answer holds at most this many tokens beyond one per byte of what is expected: white space,
// and tokens without text.
constexpr size_t kSpareAnswerTokens = 16;

size_t MaxAnswerTokens(const TaskItem& item) { return item.expected.size() + kSpareAnswerTokens; }

// The prompt and every choice behind it are tokenized as one text. Where a choice's first letters
// join the prompt's last token, all choices are scored from that token on.
Result<TaskTokens> EncodeItem(const Tokenizer& tokenizer, const TaskItem& item) {
  TaskTokens tokens;
  TQ_ASSIGN_OR_RETURN(tokens.prompt, EncodePrompt(tokenizer, item.prompt, /*for_answer=*/true));
  size_t common = tokens.prompt.size();
  for (const std::string& choice : item.choices) {
    TQ_ASSIGN_OR_RETURN(Tokens whole, EncodePrompt(tokenizer, item.prompt, true, choice));
    const auto parted = std::ranges::mismatch(tokens.prompt, whole);
    common = std::min(common, static_cast<size_t>(parted.in1 - tokens.prompt.begin()));
    tokens.continuations.push_back(std::move(whole));
  }
  tokens.prompt.resize(common);
  for (Tokens& continuation : tokens.continuations) {
    continuation.erase(continuation.begin(),
                       continuation.begin() + static_cast<std::ptrdiff_t>(common));
  }
  if (tokens.prompt.empty() || std::ranges::any_of(tokens.continuations, &Tokens::empty)) {
    return Fail(ErrorCode::kInvalidArgument, "{}: the prompt{} holds no token", item.place,
                tokens.prompt.empty() ? "" : " or a choice");
  }
  return tokens;
}

// Sum over the tokens. first: logits behind the prompt, which the lane's sequence holds.
double LogLikelihood(std::span<const float> first, std::span<const int32_t> continuation,
                     Lane* lane) {
  double sum = LogProbability(first, continuation.front());
  for (size_t at = 0; at + 1 < continuation.size(); at += kLaneChunkTokens) {
    const size_t count = std::min<size_t>(kLaneChunkTokens, continuation.size() - 1 - at);
    const std::span<const float> logits =
        lane->Feed(continuation.subspan(at, count), StepInput::Logits::kAll);
    for (size_t i = 0; i < count; ++i) {
      sum +=
          LogProbability(logits.subspan(i * first.size(), first.size()), continuation[at + i + 1]);
    }
  }
  return sum;
}

// A tie, and what is no number, is not right.
bool ChoosesRight(const TaskItem& item, const TaskTokens& tokens, Lane* lane) {
  lane->Restart();
  const std::span<const float> logits = lane->FeedPrompt(tokens.prompt);
  const std::vector<float> first(logits.begin(), logits.end());
  KvCacheManager& cache = lane->runner->cache();
  const SequenceId prompt = lane->sequence;
  std::vector<double> scores;
  for (size_t i = 0; i < item.choices.size(); ++i) {
    const auto fork = cache.Fork(prompt);
    CHECK(fork);  // the lane was planned for two sequences
    lane->sequence = *fork;
    scores.push_back(LogLikelihood(first, tokens.continuations[i], lane) /
                     static_cast<double>(Trimmed(item.choices[i]).size()));
    cache.Free(*fork);
  }
  lane->sequence = prompt;
  const auto right = static_cast<size_t>(item.answer);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i != right && !(scores[right] > scores[i])) return false;
  }
  return true;
}

bool AnswersRight(const Tokenizer& tokenizer, const TaskItem& item, const TaskTokens& tokens,
                  Lane* lane) {
  lane->Restart();
  std::span<const float> logits = lane->FeedPrompt(tokens.prompt);
  std::string text;
  for (size_t count = 1;; ++count) {
    const int32_t token = Likeliest(logits);
    const bool ended = tokenizer.IsEndOfGeneration(token);
    if (!ended) text += tokenizer.TokenToBytes(token);
    const AnswerState state =
        JudgeAnswer(text, item.expected, ended || count == MaxAnswerTokens(item));
    if (state != AnswerState::kOpen) return state == AnswerState::kRight;
    logits = lane->Feed(std::span(&token, 1), StepInput::Logits::kLast);
  }
}

// `right` counted over the items of one kind, or of all.
TaskScore Score(const TaskSet& tasks, const std::vector<bool>& right, const TaskKind* kind) {
  TaskScore score;
  for (size_t i = 0; i < tasks.items.size(); ++i) {
    if (kind != nullptr && tasks.items[i].kind != *kind) continue;
    ++score.num_items;
    score.num_right += right[i] ? 1 : 0;
  }
  if (score.num_items == 0) return score;
  score.accuracy = static_cast<double>(score.num_right) / score.num_items;
  if (score.num_items > 1) {
    score.standard_error = std::sqrt(score.accuracy * (1 - score.accuracy) / (score.num_items - 1));
  }
  return score;
}

}  // namespace

Result<TaskSet> PrepareTasks(const Model& model, std::vector<TaskItem> items) {
  TaskSet tasks = {.items = std::move(items), .tokens = {}};
  for (const TaskItem& item : tasks.items) {
    TQ_ASSIGN_OR_RETURN(TaskTokens tokens, EncodeItem(model.tokenizer(), item));
    size_t longest = item.kind == TaskKind::kExact ? MaxAnswerTokens(item) : 0;
    for (const Tokens& continuation : tokens.continuations) {
      longest = std::max(longest, continuation.size());
    }
    tasks.context = std::max(tasks.context, static_cast<int>(tokens.prompt.size() + longest));
    tasks.tokens.push_back(std::move(tokens));
  }
  return tasks;
}

Result<TaskAnswers> AnswerTasks(const std::shared_ptr<const Model>& model, const TaskSet& tasks,
                                const EvaluationCandidate* candidate,
                                const EvaluationOptions& options) {
  EvaluationOptions fitted = options;
  fitted.context = tasks.context;
  fitted.sequences = 2;  // a prompt, and a choice behind it
  TQ_ASSIGN_OR_RETURN(Lane lane, candidate == nullptr
                                     ? MakeReferenceLane(model, fitted)
                                     : MakeCandidateLane(model, *candidate, fitted));
  TaskAnswers answers = {
      .kv_cache_dtype = lane.plan.formats, .bits_per_value = lane.plan.bits_per_value, .right = {}};
  const auto total = static_cast<int64_t>(tasks.items.size());
  for (size_t i = 0; i < tasks.items.size(); ++i) {
    if (options.stop != nullptr && options.stop->load()) {
      return Fail(ErrorCode::kInterrupted, "eval: interrupted after {} of {} tasks", i, total);
    }
    const TaskItem& item = tasks.items[i];
    const TaskTokens& tokens = tasks.tokens[i];
    answers.right.push_back(item.kind == TaskKind::kChoice
                                ? ChoosesRight(item, tokens, &lane)
                                : AnswersRight(model->tokenizer(), item, tokens, &lane));
    const auto filled = static_cast<int>(tokens.prompt.size());
    answers.num_short += filled < lane.runner->cache().block_size() ? 1 : 0;
    if (options.progress) options.progress(static_cast<int64_t>(i) + 1, total);
  }
  return answers;
}

TaskComparison CompareTasks(const TaskSet& tasks, const TaskAnswers& reference,
                            const TaskAnswers& candidate) {
  TaskComparison result;
  result.kv_cache_dtype = candidate.kv_cache_dtype;
  result.bits_per_value = candidate.bits_per_value;
  result.reference = Score(tasks, reference.right, nullptr);
  result.candidate = Score(tasks, candidate.right, nullptr);
  for (const TaskKind kind : {TaskKind::kChoice, TaskKind::kExact}) {
    const auto index = static_cast<size_t>(kind);
    result.reference_by_kind[index] = Score(tasks, reference.right, &kind);
    result.candidate_by_kind[index] = Score(tasks, candidate.right, &kind);
  }
  for (size_t i = 0; i < tasks.items.size(); ++i) {
    if (reference.right[i] == candidate.right[i]) continue;
    (reference.right[i] ? result.lost : result.gained).push_back(static_cast<int>(i));
  }
  const auto count = static_cast<double>(tasks.items.size()),
             lost = static_cast<double>(result.lost.size()),
             gained = static_cast<double>(result.gained.size());
  result.loss = (lost - gained) / count;
  // Differences are -1, 0 or 1.
  const double variance = (lost + gained) / count - result.loss * result.loss;
  result.loss_standard_error = std::sqrt(std::max(0.0, variance) / std::max(1.0, count - 1));
  return result;
}

AnswerState JudgeAnswer(std::string_view text, std::string_view expected, bool ended) {
  const size_t begin = text.find_first_not_of(" \t\r\n\v\f");
  if (begin == std::string_view::npos) return ended ? AnswerState::kWrong : AnswerState::kOpen;
  text.remove_prefix(begin);
  if (const size_t line = text.find('\n'); line != std::string_view::npos) {
    text = text.substr(0, line);
    ended = true;
  }
  if (ended) return Trimmed(text) == expected ? AnswerState::kRight : AnswerState::kWrong;
  const bool may_become_right =
      text.size() <= expected.size()
          ? expected.starts_with(text)
          : text.starts_with(expected) && Trimmed(text.substr(expected.size())).empty();
  return may_become_right ? AnswerState::kOpen : AnswerState::kWrong;
}

}  // namespace turboquant
