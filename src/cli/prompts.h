// Files of prompts: one JSON object per line, {"prompt": "..."}, {"text": "..."} or {"messages":
// [{"role", "content"}]} (a conversation, through the model's chat template).
#ifndef TURBOQUANT_CLI_PROMPTS_H_
#define TURBOQUANT_CLI_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/tokenizer.h"

namespace turboquant::cli {

struct Prompt {
  std::string name;  // "file:line", for messages
  std::vector<int32_t> tokens;
};

// for_answer: a conversation ends where the model's answer begins. kInvalidArgument names the line.
Result<std::vector<Prompt>> ReadPrompts(const std::string& path, const Tokenizer& tokenizer,
                                        bool for_answer);

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_PROMPTS_H_
