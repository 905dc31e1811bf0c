#include "server/api_error.h"

#include <utility>

namespace turboquant::server {

nlohmann::ordered_json ApiError::ToJson() const {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  return {
      {"error",
       {{"message", message}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

ApiError InvalidField(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param), .code = "invalid_value"};
}

ApiError UnsupportedField(std::string param, std::string message) {
  return {
      .message = std::move(message), .param = std::move(param), .code = "unsupported_parameter"};
}

ApiError Overloaded(std::string message) {
  return {.status = 503,
          .message = std::move(message),
          .param = {},
          .code = "overloaded",
          .type = "server_error"};
}

}  // namespace turboquant::server
