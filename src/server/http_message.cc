#include "server/http_message.h"

#include "server/openai_response.h"

namespace turboquant::server {

HttpReply JsonReply(const nlohmann::ordered_json& json) { return {.body = Dump(json)}; }

HttpReply ErrorReply(const ApiError& error) {
  HttpReply reply = {.status = error.status, .body = Dump(error.ToJson())};
  if (error.status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace turboquant::server
