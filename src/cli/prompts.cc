#include "cli/prompts.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/file.h"

namespace turboquant::cli {
namespace {

Result<std::vector<int32_t>> TokensOfPrompt(const Tokenizer& tokenizer, const std::string& line,
                                            const std::string& place, bool for_answer) {
  const auto document = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"prompt", "text"}) {
    if (document.is_object() && document.contains(key) && document[key].is_string()) {
      return tokenizer.Encode(document[key].get<std::string>(), true, false);
    }
  }
  if (!document.is_object() || !document.contains("messages") || !document["messages"].is_array()) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: want one JSON object per line with \"prompt\", \"text\" or \"messages\"",
                place);
  }
  std::vector<ChatMessage> messages;
  for (const auto& message : document["messages"]) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string()) {
      return Fail(ErrorCode::kInvalidArgument, "{}: a message has no \"role\" or \"content\"",
                  place);
    }
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  TQ_ASSIGN_OR_RETURN(const std::string text, tokenizer.ApplyChatTemplate(messages, for_answer));
  return tokenizer.Encode(text, true, true);
}

}  // namespace

Result<std::vector<Prompt>> ReadPrompts(const std::string& path, const Tokenizer& tokenizer,
                                        bool for_answer) {
  TQ_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  std::istringstream lines(content);
  std::vector<Prompt> prompts;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = fmt::format("{}:{}", path, ++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    TQ_ASSIGN_OR_RETURN(auto tokens, TokensOfPrompt(tokenizer, line, place, for_answer));
    prompts.push_back({place, std::move(tokens)});
  }
  return prompts;
}

}  // namespace turboquant::cli
