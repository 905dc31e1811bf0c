// Files of tasks with a right answer: one JSON object per line.
//
//   {"type": "choice", "prompt": "Q: ...\nA:", "choices": [" Paris", " Rome"], "answer": 0}
//   {"type": "exact", "prompt": "Q: 17 + 25\nA:", "answer": "42"}
//
// "text" or "messages" may stand for "prompt" (model/prompt_json.h). Choices follow the prompt as
// they stand: a space between them belongs to the choice. Keys that are not named here are left
// alone.
#ifndef TURBOQUANT_EVAL_TASK_FILE_H_
#define TURBOQUANT_EVAL_TASK_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/prompt_json.h"

namespace turboquant {

enum class TaskKind : uint8_t { kChoice, kExact };

struct TaskItem {
  std::string place;  // "file:line"
  TaskKind kind = TaskKind::kChoice;
  JsonPrompt prompt;
  std::vector<std::string> choices;  // kChoice: at least two, none of them blank
  int answer = 0;                    // index of the right one
  std::string expected;              // kExact: one line, trimmed, not empty
};

// content: the whole file; path: for messages. Blank lines are passed over. kInvalidArgument names
// the line; also where there is no item at all.
Result<std::vector<TaskItem>> ParseTasks(std::string_view content, const std::string& path);

// Without white space (ASCII) at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_TASK_FILE_H_
