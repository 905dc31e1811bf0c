// Free-running answers (--free-running) in eval: how they are shown.
#ifndef TURBOQUANT_CLI_EVAL_ANSWERS_H_
#define TURBOQUANT_CLI_EVAL_ANSWERS_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/free_running.h"

namespace turboquant::cli {

std::string AnswersText(const std::vector<FreeRunningResult>& results, size_t num_prompts);
nlohmann::ordered_json AnswersJson(const std::vector<FreeRunningResult>& results, int max_tokens);

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_EVAL_ANSWERS_H_
