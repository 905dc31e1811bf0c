// A prompt as JSON carries it: {"prompt": "..."}, {"text": "..."} or {"messages": [{"role",
// "content"}]} (a conversation, through the model's chat template).
#ifndef TURBOQUANT_MODEL_PROMPT_JSON_H_
#define TURBOQUANT_MODEL_PROMPT_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/tokenizer.h"

namespace turboquant {

struct JsonPrompt {
  std::string text;                   // where there are no messages
  std::vector<ChatMessage> messages;  // else these
  bool is_chat = false;
  bool operator==(const JsonPrompt&) const = default;
};

// Other keys are left alone. kInvalidArgument begins with `place` ("file:line").
Result<JsonPrompt> ParseJsonPrompt(const nlohmann::json& document, const std::string& place);

// Tokens of the prompt with `continuation` behind it, tokenized as one text. for_answer: a
// conversation ends where the model's answer begins. kUnsupported: no chat template.
Result<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer, const JsonPrompt& prompt,
                                          bool for_answer, std::string_view continuation = {});

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_PROMPT_JSON_H_
