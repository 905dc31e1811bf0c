#include "server/openai_request.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <random>
#include <utility>

#include "base/json_text.h"
#include "server/json_fields.h"

namespace turboquant::server {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 26;
constexpr size_t kMaxStops = 16;

ApiResult<json> ParseObject(std::string_view body) {
  if (const Status status = CheckJson(body, "the body"); !status) {
    return std::unexpected(ApiError{.message = status.error().message, .code = "invalid_json"});
  }
  json document = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return std::unexpected(
        ApiError{.message = "the body is no JSON object", .code = "invalid_json"});
  }
  return document;
}

// Asks for nothing: absent, null, false, "", [], {}, or `neutral`.
bool AsksForNothing(const json& value, const json& neutral) {
  return value.is_null() || value == json(false) || value == json(neutral) ||
         ((value.is_structured() || value.is_string()) && value == json(value.type()));
}

std::optional<ApiError> FindUnsupported(const JsonFields& fields) {
  struct Field {
    const char* name;
    json neutral = nullptr;
  };
  static const std::array kFields = {Field{"n", 1},
                                     Field{"best_of", 1},
                                     Field{"echo"},
                                     Field{"suffix"},
                                     Field{"logprobs"},
                                     Field{"top_logprobs", 0},
                                     Field{"prompt_logprobs"},
                                     Field{"logit_bias"},
                                     Field{"frequency_penalty", 0},
                                     Field{"presence_penalty", 0},
                                     Field{"tools"},
                                     Field{"tool_choice", "none"},
                                     Field{"functions"},
                                     Field{"function_call", "none"},
                                     Field{"response_format", {{"type", "text"}}},
                                     Field{"grammar"},
                                     Field{"json_schema"},
                                     Field{"structured_outputs"},
                                     Field{"guided_json"},
                                     Field{"guided_regex"},
                                     Field{"guided_choice"},
                                     Field{"guided_grammar"},
                                     Field{"stop_token_ids"},
                                     Field{"min_tokens", 0},
                                     Field{"audio"}};
  for (const Field& field : kFields) {
    const json& value = fields.Value(field.name);
    if (AsksForNothing(value, field.neutral)) continue;
    return UnsupportedField(field.name, fmt::format("{}: this server cannot do that; leave it out"
                                                    " (the value was {})",
                                                    field.name, Shown(value)));
  }
  return std::nullopt;
}

// Sampling parameters as OpenAI defines their defaults; without a seed every call differs.
SamplingParams ReadSampling(JsonFields* fields) {
  SamplingParams sampling;
  sampling.temperature = static_cast<float>(fields->Number("temperature", 0, 2, 1));
  sampling.top_p = static_cast<float>(fields->Number("top_p", 1e-6, 1, 1));
  sampling.min_p = static_cast<float>(fields->Number("min_p", 0, 1, 0));
  sampling.top_k = static_cast<int>(fields->Integer("top_k", -1, kMaxTokens, 0));
  if (sampling.top_k < 0) sampling.top_k = 0;  // vLLM's "off"
  sampling.repetition_penalty =
      static_cast<float>(fields->Number("repetition_penalty", 0.01, 10, 1));
  const int64_t seed = fields->Integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max(), 0);
  sampling.seed =
      fields->Has("seed") ? static_cast<uint64_t>(seed) : uint64_t{std::random_device()()};
  return sampling;
}

// 0 where the call names no limit.
int ReadMaxTokens(Endpoint endpoint, JsonFields* fields) {
  constexpr int kOpenAiDefault = 16;  // of completions
  const int64_t otherwise = endpoint == Endpoint::kCompletions ? kOpenAiDefault : 0;
  const char* name = endpoint == Endpoint::kChat && fields->Has("max_completion_tokens")
                         ? "max_completion_tokens"
                         : "max_tokens";
  return static_cast<int>(fields->Integer(name, 1, kMaxTokens, otherwise));
}

// Texts and lists of parts of the type text.
ApiResult<std::string> ReadContent(const json& content, const std::string& place) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) {
    return std::unexpected(InvalidField(place, place + ": want a text or a list of parts"));
  }
  for (const json& part : content) {
    const bool is_text = part.is_object() && part.value("type", json()) == "text" &&
                         part.value("text", json()).is_string();
    if (!is_text) {
      return std::unexpected(
          UnsupportedField(place, place + ": only parts of the type \"text\" can be read"));
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

ApiResult<ChatMessage> ReadMessage(const json& message, size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object()) return std::unexpected(InvalidField(place, place + ": no object"));
  const json role = message.value("role", json());
  std::string name = role.is_string() ? role.get<std::string>() : "";
  if (name == "developer") name = "system";
  if (name != "system" && name != "user" && name != "assistant") {
    return std::unexpected(InvalidField(
        place + ".role", fmt::format("{}.role: {} is none of system, developer, user, assistant",
                                     place, Shown(role))));
  }
  auto content = ReadContent(message.value("content", json()), place + ".content");
  if (!content) return std::unexpected(content.error());
  return ChatMessage{std::move(name), std::move(*content)};
}

ApiResult<ChatMessages> ReadMessages(const json& list) {
  if (!list.is_array() || list.empty()) {
    return std::unexpected(InvalidField("messages", "messages: want a list of at least one"));
  }
  ChatMessages messages;
  for (const json& item : list) {
    auto message = ReadMessage(item, messages.size());
    if (!message) return std::unexpected(message.error());
    messages.push_back(std::move(*message));
  }
  return messages;
}

ApiResult<TokenIds> ReadTokens(const json& list, const std::string& name) {
  TokenIds tokens;
  for (const json& id : list) {
    const bool fits = id.is_number_unsigned() && std::in_range<int32_t>(id.get<uint64_t>());
    if (!fits) {
      return std::unexpected(
          InvalidField(name, fmt::format("{}: {} is no token", name, Shown(id))));
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

// A text, a list of tokens, or a list with one of these.
ApiResult<std::variant<std::string, TokenIds, ChatMessages>> ReadPrompt(const json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (!prompt.is_array() || prompt.empty()) {
    return std::unexpected(InvalidField("prompt", "prompt: want a text or a list of tokens"));
  }
  if (prompt[0].is_string() || prompt[0].is_array()) {
    if (prompt.size() == 1) return ReadPrompt(prompt[0]);
    return std::unexpected(
        UnsupportedField("prompt", "prompt: one prompt per call; send several calls at once"));
  }
  auto tokens = ReadTokens(prompt, "prompt");
  if (!tokens) return std::unexpected(tokens.error());
  return std::move(*tokens);
}

}  // namespace

ApiResult<GenerationCall> ParseGenerationCall(Endpoint endpoint, std::string_view body) {
  const ApiResult<json> document = ParseObject(body);
  if (!document) return std::unexpected(document.error());
  JsonFields fields(*document);
  GenerationCall call = {.endpoint = endpoint, .model = fields.Text("model", ""), .prompt = {}};
  call.request.sampling = ReadSampling(&fields);
  call.request.max_tokens = ReadMaxTokens(endpoint, &fields);
  call.request.stop = fields.Texts("stop", kMaxStops);
  call.request.ignore_end_of_generation = fields.Boolean("ignore_eos", false);
  call.stream = fields.Boolean("stream", false);
  const json& options = fields.Value("stream_options");
  if (!options.is_null() && !options.is_object()) fields.Refuse("stream_options", "no object");
  if (fields.error()) return std::unexpected(*fields.error());
  if (options.is_object()) {
    JsonFields stream_options(options, "stream_options.");
    call.include_usage = stream_options.Boolean("include_usage", false);
    if (stream_options.error()) return std::unexpected(*stream_options.error());
  }
  if (auto unsupported = FindUnsupported(fields)) return std::unexpected(std::move(*unsupported));
  if (endpoint == Endpoint::kChat) {
    auto messages = ReadMessages(fields.Value("messages"));
    if (!messages) return std::unexpected(messages.error());
    call.prompt = std::move(*messages);
  } else {
    auto prompt = ReadPrompt(fields.Value("prompt"));
    if (!prompt) return std::unexpected(prompt.error());
    call.prompt = std::move(*prompt);
  }
  return call;
}

ApiResult<TokenizeCall> ParseTokenizeCall(std::string_view body) {
  const ApiResult<json> document = ParseObject(body);
  if (!document) return std::unexpected(document.error());
  JsonFields fields(*document);
  const char* name = fields.Has("content") ? "content" : "prompt";
  if (!fields.Has(name)) fields.Refuse(name, "is missing");
  TokenizeCall call{.text = fields.Text(name, ""),
                    .add_special = fields.Boolean("add_special_tokens", true)};
  if (fields.error()) return std::unexpected(*fields.error());
  return call;
}

ApiResult<TokenIds> ParseDetokenizeCall(std::string_view body) {
  const ApiResult<json> document = ParseObject(body);
  if (!document) return std::unexpected(document.error());
  const JsonFields fields(*document);
  const json& tokens = fields.Value("tokens");
  if (!tokens.is_array()) {
    return std::unexpected(InvalidField("tokens", "tokens: want a list of tokens"));
  }
  return ReadTokens(tokens, "tokens");
}

}  // namespace turboquant::server
