// Tasks (--tasks) in eval: what was measured, and how it is shown.
#ifndef TURBOQUANT_CLI_EVAL_TASKS_H_
#define TURBOQUANT_CLI_EVAL_TASKS_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/tasks.h"
#include "model/model.h"

namespace turboquant::cli {

struct TaskMeasurement {
  TaskSet tasks;
  TaskAnswers reference;
  std::vector<TaskComparison> results;  // of options.candidates
};

// Reads the file and runs the reference and every candidate of options.
Result<TaskMeasurement> MeasureTasks(const std::string& path,
                                     const std::shared_ptr<const Model>& model,
                                     const EvaluationOptions& options);

std::string TasksText(const TaskMeasurement& measured);
nlohmann::ordered_json TasksJson(const TaskMeasurement& measured);
// The figures of one candidate, without the names of items.
nlohmann::ordered_json TaskFigures(const TaskComparison& result);

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_EVAL_TASKS_H_
