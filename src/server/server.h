// OpenAI-compatible HTTP server over one engine: one thread for all connections, the engine on its
// own.
//
//   auto server = Server::Listen(options, &engine_service);
//   (*server)->Run(stop_flag);     // until the flag is set and what was under way is answered
#ifndef TURBOQUANT_SERVER_SERVER_H_
#define TURBOQUANT_SERVER_SERVER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine_service.h"

namespace turboquant::server {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address of this machine, or "localhost"
  int port = 8000;                 // 0 = any that is free
  std::string model_name;          // as clients name it
  std::string version;
  std::string api_key = {};  // empty = none is needed
  std::vector<std::string> allowed_origins = {};
  double shutdown_timeout_s = 30;  // for answers under way when the server is stopped
};

class Server {
 public:
  // Takes the port; calls wait from then on. kInvalidArgument: no such address; kIo: the port is
  // taken. The engine must outlive the server; Run stops it.
  static Result<std::unique_ptr<Server>> Listen(ServerOptions options, EngineService* engine);
  ~Server();

  // "http://127.0.0.1:8000"
  std::string Url() const;
  // Serves until `stop` is set, then takes no new call, lets what is under way end for
  // shutdown_timeout_s and cancels the rest.
  void Run(const std::atomic<bool>& stop);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_SERVER_H_
