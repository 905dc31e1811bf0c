// Answers in OpenAI's shapes: whole documents and the events of a stream.
#ifndef TURBOQUANT_SERVER_OPENAI_RESPONSE_H_
#define TURBOQUANT_SERVER_OPENAI_RESPONSE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/request.h"
#include "server/openai_request.h"

namespace turboquant::server {

// What every document of one answer says alike.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;       // "chatcmpl-..." or "cmpl-..."
  std::string model;    // as served
  int64_t created = 0;  // seconds since 1970
};

using Json = nlohmann::ordered_json;

// tokens of the prompt (of them taken from a kept cache) and of the answer; what the cache took for
// them ("kv", an extension).
Json UsageJson(const RequestStats& stats);

// An answer in one piece.
Json AnswerJson(const AnswerHead& head, const std::string& text, const RequestOutput& last);

// Events of a stream. A chat begins with one that names the role.
Json RoleEvent(const AnswerHead& head);
Json TextEvent(const AnswerHead& head, const std::string& text,
               std::optional<FinishReason> finish_reason);
Json UsageEvent(const AnswerHead& head, const RequestStats& stats);

// One line for a wire: bad UTF-8 becomes U+FFFD.
std::string Dump(const Json& json);
// "data: ...\n\n"
std::string ServerSentEvent(const Json& json);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_OPENAI_RESPONSE_H_
