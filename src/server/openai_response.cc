#include "server/openai_response.h"

namespace turboquant::server {
namespace {

// OpenAI's words; a cancelled answer has nobody to read it.
Json FinishJson(std::optional<FinishReason> reason) {
  return reason ? Json(Name(*reason)) : Json();
}

Json HeadJson(const AnswerHead& head, const char* chat_object) {
  return {{"id", head.id},
          {"object", head.endpoint == Endpoint::kChat ? chat_object : "text_completion"},
          {"created", head.created},
          {"model", head.model}};
}

Json ChatEvent(const AnswerHead& head, Json delta, std::optional<FinishReason> finish_reason) {
  Json event = HeadJson(head, "chat.completion.chunk");
  event["choices"] = Json::array({Json{{"index", 0},
                                       {"delta", std::move(delta)},
                                       {"logprobs", nullptr},
                                       {"finish_reason", FinishJson(finish_reason)}}});
  return event;
}

}  // namespace

Json UsageJson(const RequestStats& stats) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"completion_tokens", stats.generated_tokens},
          {"total_tokens", stats.prompt_tokens + stats.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", stats.reused_tokens}}},
          {"kv",
           {{"tokens", stats.kv_tokens},
            {"bytes", stats.kv_bytes},
            {"bytes_f16", stats.kv_bytes_f16},
            {"bits_per_value", stats.bits_per_value}}}};
}

Json AnswerJson(const AnswerHead& head, const std::string& text, const RequestOutput& last) {
  Json answer = HeadJson(head, "chat.completion");
  Json choice = {{"index", 0}};
  if (head.endpoint == Endpoint::kChat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishJson(last.finish_reason);
  answer["choices"] = Json::array({std::move(choice)});
  answer["usage"] = UsageJson(last.stats);
  return answer;
}

Json RoleEvent(const AnswerHead& head) {
  return ChatEvent(head, {{"role", "assistant"}, {"content", ""}}, {});
}

Json TextEvent(const AnswerHead& head, const std::string& text,
               std::optional<FinishReason> finish_reason) {
  if (head.endpoint == Endpoint::kChat) {
    return ChatEvent(head, text.empty() ? Json::object() : Json{{"content", text}}, finish_reason);
  }
  Json event = HeadJson(head, "");
  event["choices"] = Json::array({Json{{"index", 0},
                                       {"text", text},
                                       {"logprobs", nullptr},
                                       {"finish_reason", FinishJson(finish_reason)}}});
  return event;
}

Json UsageEvent(const AnswerHead& head, const RequestStats& stats) {
  Json event = HeadJson(head, "chat.completion.chunk");
  event["choices"] = Json::array();
  event["usage"] = UsageJson(stats);
  return event;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ServerSentEvent(const Json& json) { return "data: " + Dump(json) + "\n\n"; }

}  // namespace turboquant::server
