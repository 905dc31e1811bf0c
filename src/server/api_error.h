// What a client is told when its call is refused, in the shape that OpenAI's clients read:
// {"error": {"message", "type", "param", "code"}}.
#ifndef TURBOQUANT_SERVER_API_ERROR_H_
#define TURBOQUANT_SERVER_API_ERROR_H_

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

namespace turboquant::server {

struct ApiError {
  int status = 400;                            // of HTTP
  std::string message = {};                    // what was wrong and what would work
  std::string param = {};                      // field of the call; empty = none
  std::string code = {};                       // for programs; empty = none
  std::string type = "invalid_request_error";  // kind, as OpenAI names them

  nlohmann::ordered_json ToJson() const;
};

template <typename T>
using ApiResult = std::expected<T, ApiError>;

// One of the caller's fields is wrong.
ApiError InvalidField(std::string param, std::string message);
// A field that is understood and cannot be honoured: refused rather than ignored.
ApiError UnsupportedField(std::string param, std::string message);
// The whole server has no room now: 503. A client may try again.
ApiError Overloaded(std::string message);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_API_ERROR_H_
