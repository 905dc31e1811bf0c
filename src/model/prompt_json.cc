#include "model/prompt_json.h"

#include <utility>

namespace turboquant {

Result<JsonPrompt> ParseJsonPrompt(const nlohmann::json& document, const std::string& place) {
  for (const char* key : {"prompt", "text"}) {
    if (document.is_object() && document.contains(key) && document[key].is_string()) {
      return JsonPrompt{.text = document[key].get<std::string>(), .messages = {}};
    }
  }
  if (!document.is_object() || !document.contains("messages") || !document["messages"].is_array()) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: want one JSON object per line with \"prompt\", \"text\" or \"messages\"",
                place);
  }
  JsonPrompt prompt = {.text = {}, .messages = {}, .is_chat = true};
  for (const auto& message : document["messages"]) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string()) {
      return Fail(ErrorCode::kInvalidArgument, "{}: a message has no \"role\" or \"content\"",
                  place);
    }
    prompt.messages.push_back(
        {message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  return prompt;
}

Result<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer, const JsonPrompt& prompt,
                                          bool for_answer, std::string_view continuation) {
  if (!prompt.is_chat) {
    return tokenizer.Encode(prompt.text + std::string(continuation), true, false);
  }
  TQ_ASSIGN_OR_RETURN(std::string text, tokenizer.ApplyChatTemplate(prompt.messages, for_answer));
  text += continuation;
  return tokenizer.Encode(text, true, true);
}

}  // namespace turboquant
