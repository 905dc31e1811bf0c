#include "server/app.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <random>
#include <utility>

#include "base/printable_text.h"

namespace turboquant::server {
namespace {

int64_t Now() { return static_cast<int64_t>(std::time(nullptr)); }

// 96 random bits: ids of answers, unique over restarts and servers.
std::string RandomId() {
  static std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

ApiError NotFound(std::string message) {
  return {.status = 404, .message = std::move(message), .param = {}, .code = "not_found"};
}

constexpr std::array<std::string_view, 4> kPostPaths = {"/v1/completions", "/v1/chat/completions",
                                                        "/tokenize", "/detokenize"};
constexpr std::array<std::string_view, 5> kGetPaths = {"/health", "/version", "/metrics",
                                                       "/v1/models", "/v1/kv"};
constexpr std::string_view kModelPath = "/v1/models/";

// The method that a path takes; empty for a path that is not there.
std::string_view MethodOf(std::string_view path) {
  if (std::ranges::find(kPostPaths, path) != kPostPaths.end()) return "POST";
  const bool known = std::ranges::find(kGetPaths, path) != kGetPaths.end();
  return known || path.starts_with(kModelPath) ? "GET" : "";
}

// Prompts that the engine refuses: too long ones by OpenAI's code.
ApiError Refused(const Error& error, size_t prompt_tokens, int max_model_len) {
  ApiError refused = {.message = error.message};
  if (std::cmp_greater_equal(prompt_tokens, max_model_len)) {
    refused.code = "context_length_exceeded";
    refused.message = fmt::format(
        "the prompt has {} tokens; this server's context is {}, of which one at least must be left"
        " for the answer",
        prompt_tokens, max_model_len);
  }
  return refused;
}

}  // namespace

App::App(EngineService* engine, AppOptions options)
    : engine_(engine),
      options_(std::move(options)),
      started_(Now()),
      metrics_(options_.model_name) {}

std::variant<HttpReply, Generation> App::Handle(const HttpCall& call) {
  std::variant<HttpReply, Generation> result = Route(call);
  const auto* reply = std::get_if<HttpReply>(&result);
  if (reply != nullptr && reply->status >= 400) metrics_.CountRefused(reply->status);
  return result;
}

std::variant<HttpReply, Generation> App::Route(const HttpCall& call) {
  if (const auto refused = CheckAccess(options_.access, call);
      refused && !(call.method == "OPTIONS" && refused->status == 401)) {
    return ErrorReply(*refused);
  }
  if (call.method == "OPTIONS") return HttpReply{.status = 204, .content_type = {}};
  const std::string_view method = MethodOf(call.path);
  if (method.empty()) {
    return ErrorReply(
        NotFound(fmt::format("no path {}; there are {}, {}", PrintableText(call.path),
                             fmt::join(kGetPaths, ", "), fmt::join(kPostPaths, ", "))));
  }
  if (call.method != method && !(method == "GET" && call.method == "HEAD")) {
    return ErrorReply({.status = 405,
                       .message = fmt::format("{} takes {}", PrintableText(call.path), method),
                       .code = "method_not_allowed"});
  }
  if (method == "GET") return Get(call.path);
  if (call.path == "/tokenize") return Tokenize(call.body);
  if (call.path == "/detokenize") return Detokenize(call.body);
  return Generate(call.path == "/v1/completions" ? Endpoint::kCompletions : Endpoint::kChat, call);
}

HttpReply App::Get(const std::string& path) {
  if (path == "/health") return Health();
  if (path == "/version") return JsonReply({{"version", options_.version}});
  if (path == "/v1/models") return Models();
  if (path == "/v1/kv") return KvCache();
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_.Text(engine_->stats())};
  }
  return Model(path.substr(kModelPath.size()));
}

HttpReply App::Health() const {
  HttpReply reply = JsonReply({{"status", draining_ ? "draining" : "ok"}});
  if (draining_) reply.status = 503;
  return reply;
}

nlohmann::ordered_json App::ModelJson() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "turboquant"},
          {"max_model_len", engine_->plan().max_model_len},
          {"kv_cache_dtype", engine_->plan().formats}};
}

HttpReply App::Models() const {
  return JsonReply({{"object", "list"}, {"data", nlohmann::ordered_json::array({ModelJson()})}});
}

HttpReply App::Model(const std::string& id) const {
  if (id == options_.model_name) return JsonReply(ModelJson());
  return ErrorReply(NotFound(
      fmt::format("no model '{}'; '{}' is served", PrintableText(id), options_.model_name)));
}

HttpReply App::KvCache() const {
  const CachePlan& plan = engine_->plan();
  const EngineStats stats = engine_->stats();
  return JsonReply({{"formats", plan.formats},
                    {"bits_per_value", plan.bits_per_value},
                    {"bytes_per_token", plan.bytes_per_token},
                    {"bytes_per_token_f16", plan.f16_bytes_per_token},
                    {"max_model_len", plan.max_model_len},
                    {"max_num_seqs", plan.max_num_seqs},
                    {"pool_bytes", plan.pool_bytes + plan.sequence_bytes},  // as `plan` counts it
                    {"sequence_bytes", plan.sequence_bytes},  // of it, tails and first tokens
                    {"pool_tokens", plan.PoolTokens()},
                    {"blocks", stats.kv.num_blocks},
                    {"blocks_free", stats.kv.num_free_blocks},
                    {"blocks_kept", stats.kept_blocks},
                    {"bytes_used", stats.kv.block_bytes_used + stats.kv.sequence_bytes_used},
                    {"tokens", stats.kv.num_tokens},
                    {"requests_running", stats.num_running},
                    {"requests_waiting", stats.num_waiting},
                    {"caches_kept", stats.num_kept},
                    {"preemptions", stats.preemptions}});
}

HttpReply App::Tokenize(const std::string& body) const {
  const ApiResult<TokenizeCall> call = ParseTokenizeCall(body);
  if (!call) return ErrorReply(call.error());
  const TokenIds tokens = engine_->tokenizer().Encode(call->text, call->add_special, true);
  return JsonReply({{"count", tokens.size()},
                    {"max_model_len", engine_->plan().max_model_len},
                    {"tokens", tokens}});
}

HttpReply App::Detokenize(const std::string& body) const {
  const ApiResult<TokenIds> tokens = ParseDetokenizeCall(body);
  if (!tokens) return ErrorReply(tokens.error());
  for (const int32_t token : *tokens) {
    if (token < engine_->model().vocab_size) continue;
    return ErrorReply(InvalidField("tokens", fmt::format("tokens: {} is none of the model's {}",
                                                         token, engine_->model().vocab_size)));
  }
  const std::string text = engine_->tokenizer().Decode(*tokens);
  return JsonReply({{"prompt", text}, {"content", text}});
}

ApiResult<TokenIds> App::Prompt(const GenerationCall& call) const {
  const Tokenizer& tokenizer = engine_->tokenizer();
  if (const auto* tokens = std::get_if<TokenIds>(&call.prompt)) return *tokens;
  if (const auto* text = std::get_if<std::string>(&call.prompt)) {
    return tokenizer.Encode(*text, true, true);
  }
  if (!tokenizer.has_chat_template()) {
    return std::unexpected(
        UnsupportedField("messages", "the model has no chat template; use /v1/completions"));
  }
  const auto text = tokenizer.ApplyChatTemplate(std::get<ChatMessages>(call.prompt), true);
  if (!text) return std::unexpected(UnsupportedField("messages", text.error().message));
  return tokenizer.Encode(*text, true, true);
}

std::variant<HttpReply, Generation> App::Generate(Endpoint endpoint, const HttpCall& call) {
  if (draining_) return ErrorReply(Overloaded("the server is shutting down"));
  ApiResult<GenerationCall> parsed = ParseGenerationCall(endpoint, call.body);
  if (!parsed) return ErrorReply(parsed.error());
  if (!parsed->model.empty() && parsed->model != options_.model_name) {
    return ErrorReply({.status = 404,
                       .message = fmt::format("no model '{}'; '{}' is served",
                                              PrintableText(parsed->model), options_.model_name),
                       .param = "model",
                       .code = "model_not_found"});
  }
  ApiResult<TokenIds> prompt = Prompt(*parsed);
  if (!prompt) return ErrorReply(prompt.error());
  Request& request = parsed->request;
  request.prompt = std::move(*prompt);
  if (const Status status = engine_->Check(request); !status) {
    return ErrorReply(
        Refused(status.error(), request.prompt.size(), engine_->plan().max_model_len));
  }
  const AnswerHead head = {.endpoint = endpoint,
                           .id = (endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-") + RandomId(),
                           .model = options_.model_name,
                           .created = Now()};
  return Generation{std::move(request), Answer(head, parsed->stream, parsed->include_usage)};
}

void App::Finished(const Answer& answer) {
  metrics_.CountFinished(*answer.last().finish_reason, answer.last().stats);
}

std::vector<std::pair<std::string, std::string>> App::CommonHeaders(const HttpCall& call) const {
  std::vector<std::pair<std::string, std::string>> headers = {
      {"X-Request-Id", call.request_id.empty() ? RandomId() : call.request_id}};
  if (!call.origin.empty() && OriginAllowed(options_.access, call.origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", call.origin);
    headers.emplace_back("Vary", "Origin");
    headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type");
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  }
  return headers;
}

}  // namespace turboquant::server
