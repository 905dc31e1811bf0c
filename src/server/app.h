// What is served: every path and what it answers. Knows engine and schema, no sockets.
//
//   GET  /health /version /metrics /v1/models /v1/models/{id} /v1/kv
//   POST /v1/completions /v1/chat/completions /tokenize /detokenize
//
// For one thread; the engine runs on its own.
#ifndef TURBOQUANT_SERVER_APP_H_
#define TURBOQUANT_SERVER_APP_H_

#include <optional>
#include <string>
#include <variant>

#include "engine/engine_service.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/openai_request.h"

namespace turboquant::server {

struct AppOptions {
  std::string model_name;  // as clients name it
  std::string version;
  AccessRules access;
};

// A call that has been checked and whose text the engine is to make.
struct Generation {
  Request request;
  Answer answer;
};

class App {
 public:
  App(EngineService* engine, AppOptions options);

  std::variant<HttpReply, Generation> Handle(const HttpCall& call);
  // Counts the end of a generation.
  void Finished(const Answer& answer);
  // From now on /health says that no more is taken, and nothing is.
  void Drain() { draining_ = true; }
  // Header fields that every reply to this call bears.
  std::vector<std::pair<std::string, std::string>> CommonHeaders(const HttpCall& call) const;

  EngineService& engine() { return *engine_; }

 private:
  std::variant<HttpReply, Generation> Route(const HttpCall& call);
  HttpReply Get(const std::string& path);
  HttpReply Health() const;
  HttpReply Models() const;
  HttpReply Model(const std::string& id) const;
  HttpReply KvCache() const;
  HttpReply Tokenize(const std::string& body) const;
  HttpReply Detokenize(const std::string& body) const;
  std::variant<HttpReply, Generation> Generate(Endpoint endpoint, const HttpCall& call);
  ApiResult<TokenIds> Prompt(const GenerationCall& call) const;
  nlohmann::ordered_json ModelJson() const;

  EngineService* engine_;
  const AppOptions options_;
  const int64_t started_;  // seconds since 1970
  ServerMetrics metrics_;
  bool draining_ = false;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_APP_H_
