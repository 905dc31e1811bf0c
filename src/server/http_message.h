// What the HTTP side and what answers tell each other; knows no library.
#ifndef TURBOQUANT_SERVER_HTTP_MESSAGE_H_
#define TURBOQUANT_SERVER_HTTP_MESSAGE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace turboquant::server {

struct HttpCall {
  std::string method;                                   // "GET"
  std::string path;                                     // without the query
  std::string host, origin, authorization, request_id;  // header fields; empty = not sent
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

HttpReply JsonReply(const nlohmann::ordered_json& json);
HttpReply ErrorReply(const ApiError& error);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_HTTP_MESSAGE_H_
