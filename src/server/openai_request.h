// The calls of OpenAI's API that generate text, from their JSON: /v1/completions and
// /v1/chat/completions. Source: OpenAI's API reference; extensions (top_k, min_p,
// repetition_penalty, ignore_eos) as vLLM names them.
//
// A field that cannot be honoured is refused unless its value asks for nothing (n: 1,
// logprobs: false); unknown fields are ignored, as new clients send new ones.
#ifndef TURBOQUANT_SERVER_OPENAI_REQUEST_H_
#define TURBOQUANT_SERVER_OPENAI_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine_service.h"
#include "server/api_error.h"

namespace turboquant::server {

enum class Endpoint : uint8_t { kCompletions, kChat };

using ChatMessages = std::vector<ChatMessage>;
using TokenIds = std::vector<int32_t>;

struct GenerationCall {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model = {};  // empty = whatever is served
  std::variant<std::string, TokenIds, ChatMessages> prompt;
  Request request = {};  // all but the prompt
  bool stream = false;
  bool include_usage = false;  // in a last event of the stream
};

// Refused by name: what is no JSON, has a key twice or lies deeper than 32 levels.
ApiResult<GenerationCall> ParseGenerationCall(Endpoint endpoint, std::string_view body);

// {"prompt": text} or {"content": text}, for /tokenize; {"tokens": [ids]} for /detokenize.
struct TokenizeCall {
  std::string text;
  bool add_special = true;
};
ApiResult<TokenizeCall> ParseTokenizeCall(std::string_view body);
ApiResult<TokenIds> ParseDetokenizeCall(std::string_view body);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_OPENAI_REQUEST_H_
