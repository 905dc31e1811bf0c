// An engine on a thread of its own, for callers on other threads: requests go in, outputs come back
// by a function as steps make them.
//
//   EngineService service(std::move(engine), {.max_queued_requests = 100});
//   auto id = service.Submit(std::move(request), [](RequestOutput output) { ... });
//
// A finished request leaves its cache to whoever continues its text (Request::keep_cache): a prompt
// that begins with all that a kept cache holds computes only the rest. It changes no result.
//
// All members may be called from any thread, but not from within an OnOutput.
#ifndef TURBOQUANT_ENGINE_ENGINE_SERVICE_H_
#define TURBOQUANT_ENGINE_ENGINE_SERVICE_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "model/tokenizer.h"

namespace turboquant {

struct EngineServiceOptions {
  int max_queued_requests = 256;  // beyond the sequences that the engine can run at once
};

class EngineService {
 public:
  // Called on the service's thread, between steps: must return soon and not throw. The last call of
  // a request has a finish_reason.
  using OnOutput = std::function<void(RequestOutput)>;

  EngineService(std::unique_ptr<Engine> engine, EngineServiceOptions options);
  ~EngineService();  // Stop
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // What Submit refuses a request for.
  Status Check(const Request& request) const { return engine_->CheckRequest(request); }
  // The request's id, which its outputs bear; empty: as many requests as options allow are there,
  // or the service has been stopped. Errors as of Engine::AddRequest.
  Result<std::optional<RequestId>> Submit(Request request, OnOutput on_output);
  // The last output of the request, kCancelled, comes after at most one more step. An id that is
  // unknown or finished is ignored.
  void Cancel(RequestId id);
  // Cancels every request, delivers their last outputs and ends the thread.
  void Stop();

  // As of the newest step; what waits to be taken over counts as waiting.
  EngineStats stats() const;
  // Submitted and not finished.
  int num_requests() const;

  // What never changes.
  const CachePlan& plan() const { return engine_->plan(); }
  const ModelConfig& model() const { return engine_->model().config(); }
  const Tokenizer& tokenizer() const { return engine_->model().tokenizer(); }

 private:
  struct Submission {
    RequestId id;
    Request request;
    OnOutput on_output;
  };
  struct Active {
    RequestId id;  // the service's
    OnOutput on_output;
  };

  void Run();
  bool TakeOver();
  void Add(Submission submission);
  void CancelActive(RequestId id);
  void Deliver(RequestOutput output);

  const std::unique_ptr<Engine> engine_;  // steps on thread_ alone
  const int max_requests_;
  std::map<RequestId, Active> active_;  // by the engine's id; thread_ alone

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<Submission> submissions_;
  std::vector<RequestId> cancellations_;
  EngineStats stats_;
  int64_t next_id_ = 0;
  int num_requests_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_ENGINE_SERVICE_H_
