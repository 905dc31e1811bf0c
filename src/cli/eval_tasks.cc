#include "cli/eval_tasks.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"

namespace turboquant::cli {
namespace {

std::string Percent(const TaskScore& score) {
  return fmt::format("{:.1f} +- {:.1f}", 100 * score.accuracy, 100 * score.standard_error);
}

std::string Share(const TaskScore& score) {
  return score.num_items == 0 ? "-" : fmt::format("{}/{}", score.num_right, score.num_items);
}

std::string Row(std::string_view name, double bits, const TaskScore& all,
                const TaskScore (&by_kind)[2]) {
  return fmt::format("{:<44}{:>7.3f}{:>14}{:>9}{:>9}", name, bits, Percent(all), Share(by_kind[0]),
                     Share(by_kind[1]));
}

nlohmann::ordered_json ScoreJson(const TaskScore& all, const TaskScore (&by_kind)[2]) {
  nlohmann::ordered_json document = {
      {"accuracy", all.accuracy}, {"standard_error", all.standard_error}, {"right", all.num_right}};
  for (const auto& [name, score] :
       {std::pair{"choice", &by_kind[0]}, std::pair{"exact", &by_kind[1]}}) {
    document[name] = {{"items", score->num_items}, {"right", score->num_right}};
  }
  return document;
}

nlohmann::ordered_json Places(const TaskSet& tasks, const std::vector<int>& items) {
  auto places = nlohmann::ordered_json::array();
  for (const int item : items) places.push_back(tasks.items[static_cast<size_t>(item)].place);
  return places;
}

}  // namespace

Result<TaskMeasurement> MeasureTasks(const std::string& path,
                                     const std::shared_ptr<const Model>& model,
                                     const EvaluationOptions& options) {
  TQ_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  TQ_ASSIGN_OR_RETURN(std::vector<TaskItem> items, ParseTasks(content, path));
  TaskMeasurement measured;
  TQ_ASSIGN_OR_RETURN(measured.tasks, PrepareTasks(*model, std::move(items)));
  EvaluationOptions counted = options;
  int64_t before = 0;
  const auto num_caches = static_cast<int64_t>(options.candidates.size()) + 1;
  counted.progress = [&](int64_t done, int64_t total) {
    if (options.progress) options.progress(before * total + done, num_caches * total);
  };
  TQ_ASSIGN_OR_RETURN(measured.reference, AnswerTasks(model, measured.tasks, nullptr, counted));
  for (const EvaluationCandidate& candidate : options.candidates) {
    ++before;
    TQ_ASSIGN_OR_RETURN(const TaskAnswers answers,
                        AnswerTasks(model, measured.tasks, &candidate, counted));
    measured.results.push_back(CompareTasks(measured.tasks, measured.reference, answers));
  }
  return measured;
}

std::string TasksText(const TaskMeasurement& measured) {
  const size_t count = measured.tasks.items.size();
  std::string text = fmt::format(
      "{} tasks, against the f32 cache; accuracy in percent\n{:<44}{:>7}{:>14}{:>9}"
      "{:>9}{:>14}{:>9}\n",
      count, "kv cache", "bits", "accuracy", "choice", "exact", "loss", "changed");
  const TaskComparison& first = measured.results.front();
  text += Row("f32, the reference", measured.reference.bits_per_value, first.reference,
              first.reference_by_kind) +
          "\n";
  for (const TaskComparison& result : measured.results) {
    text += Row(result.kv_cache_dtype, result.bits_per_value, result.candidate,
                result.candidate_by_kind);
    text += fmt::format(
        "{:>14}{:>9}\n",
        fmt::format("{:.1f} +- {:.1f}", 100 * result.loss, 100 * result.loss_standard_error),
        result.lost.size() + result.gained.size());
  }
  if (measured.reference.num_short > 0) {
    text += fmt::format(
        "{} of the prompts are shorter than a block: they say nothing of a quantized cache\n",
        measured.reference.num_short);
  }
  return text;
}

nlohmann::ordered_json TaskFigures(const TaskComparison& result) {
  nlohmann::ordered_json document = ScoreJson(result.candidate, result.candidate_by_kind);
  document["loss"] = result.loss;
  document["loss_standard_error"] = result.loss_standard_error;
  document["changed"] = result.lost.size() + result.gained.size();
  return document;
}

nlohmann::ordered_json TasksJson(const TaskMeasurement& measured) {
  const TaskComparison& first = measured.results.front();
  nlohmann::ordered_json document = {
      {"items", measured.tasks.items.size()},
      {"short_prompts", measured.reference.num_short},
      {"reference", ScoreJson(first.reference, first.reference_by_kind)},
      {"results", nlohmann::ordered_json::array()}};
  for (const TaskComparison& result : measured.results) {
    nlohmann::ordered_json row = TaskFigures(result);
    row["kv_cache_dtype"] = result.kv_cache_dtype;
    row["bits_per_value"] = result.bits_per_value;
    row["lost"] = Places(measured.tasks, result.lost);
    row["gained"] = Places(measured.tasks, result.gained);
    document["results"].push_back(std::move(row));
  }
  return document;
}

}  // namespace turboquant::cli
