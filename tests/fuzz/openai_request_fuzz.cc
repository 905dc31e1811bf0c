// Any bytes as the body of every call. Refused: with a status and a message that shows on a line.
// Accepted: what the engine is asked for lies in its range.
#include <string_view>

#include "base/check.h"
#include "server/openai_request.h"

namespace turboquant::server {

void CheckRefusal(const ApiError& error) {
  CHECK_EQ(error.status, 400);
  CHECK(!error.message.empty());
  CHECK_LT(error.message.size(), 1000u);
}

void CheckCall(Endpoint endpoint, std::string_view body) {
  const auto call = ParseGenerationCall(endpoint, body);
  if (!call) return CheckRefusal(call.error());
  CHECK(call->request.sampling.Validate());
  CHECK_GE(call->request.max_tokens, 0);
  for (const std::string& stop : call->request.stop) CHECK(!stop.empty());
  CHECK_EQ(std::holds_alternative<ChatMessages>(call->prompt), endpoint == Endpoint::kChat);
}

}  // namespace turboquant::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant::server;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  CheckCall(Endpoint::kChat, body);
  CheckCall(Endpoint::kCompletions, body);
  if (const auto call = ParseTokenizeCall(body); !call) CheckRefusal(call.error());
  if (const auto call = ParseDetokenizeCall(body); !call) CheckRefusal(call.error());
  return 0;
}
