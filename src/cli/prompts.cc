#include "cli/prompts.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "model/prompt_json.h"

namespace turboquant::cli {
namespace {

Result<std::vector<int32_t>> TokensOfPrompt(const Tokenizer& tokenizer, const std::string& line,
                                            const std::string& place, bool for_answer) {
  const auto document = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  TQ_ASSIGN_OR_RETURN(const JsonPrompt prompt, ParseJsonPrompt(document, place));
  return EncodePrompt(tokenizer, prompt, for_answer);
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
