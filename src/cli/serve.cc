// turboquant serve: an OpenAI-compatible server on one model.
#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "server/server.h"

namespace turboquant::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  server::ServerOptions server;
  int max_num_seqs = 8;
  int max_queued_requests = 256;
};

Result<int> Serve(const ServeFlags& flags) {
  TQ_ASSIGN_OR_RETURN(auto engine, LoadEngine(flags.model, flags.max_num_seqs, AtSignal::kGoOn));
  server::ServerOptions options = flags.server;
  options.version = TURBOQUANT_VERSION;
  if (options.model_name.empty())
    options.model_name = std::filesystem::path(flags.model.ModelPath()).stem();
  EngineService service(std::move(engine), {.max_queued_requests = flags.max_queued_requests});
  TQ_ASSIGN_OR_RETURN(auto server, server::Server::Listen(std::move(options), &service));
  spdlog::info("listening on {}", server->Url());
  server->Run(StopFlag());
  return kExitDone;
}

void AddServerFlags(CLI::App* verb, ServeFlags* flags) {
  constexpr const char* kGroup = "Server";
  verb->add_option("--host", flags->server.host,
                   "address to listen on; 0.0.0.0 serves other machines too")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--port", flags->server.port, "port; 0 takes a free one")
      ->group(kGroup)
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_option("--served-model-name", flags->server.model_name,
                   "name that clients give (default: the file's, without .gguf)")
      ->group(kGroup);
  verb->add_option("--api-key", flags->server.api_key,
                   "key that clients must send, for all but /health")
      ->group(kGroup);
  verb->add_option("--allowed-origins", flags->server.allowed_origins,
                   "web pages that may call, beside those of this machine; '*' = all")
      ->group(kGroup);
  verb->add_option("--max-num-seqs", flags->max_num_seqs, "sequences that run at once")
      ->group(kGroup)
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  verb->add_option("--max-num-queued-reqs", flags->max_queued_requests,
                   "requests that may wait beyond those; more are refused with status 503")
      ->group(kGroup)
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("--shutdown-timeout", flags->server.shutdown_timeout_s,
                   "seconds that answers under way get after Ctrl-C or SIGTERM")
      ->group(kGroup)
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
}

}  // namespace

Verb AddServe(CLI::App* program) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* verb = program->add_subcommand("serve", "serve the model over HTTP, as OpenAI's API");
  AddServerFlags(verb, flags.get());
  AddModelFlags(verb, &flags->model);
  return {verb, [flags] {
            const Result<int> status = Serve(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
