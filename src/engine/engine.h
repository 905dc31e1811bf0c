// The engine: requests in, tokens and text out, many at a time over one quantized cache.
//
//   auto engine = Engine::Create(model, options);           // refuses what cannot fit
//   auto id = (*engine)->AddRequest({.prompt = tokens, .max_tokens = 100});
//   while ((*engine)->HasWork()) for (const RequestOutput& out : (*engine)->Step())
//   Print(out.text);
//
// One thread calls it; the model's kernels use options.num_threads. A step computes chunks of
// prompts and single tokens of running sequences together (engine/scheduler.h). Tools that want
// logits use the runner directly (engine/model_runner.h).
#ifndef TURBOQUANT_ENGINE_ENGINE_H_
#define TURBOQUANT_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "model/model.h"
#include "planner/ledger.h"

namespace turboquant {

struct EngineOptions {
  CachePlanOptions cache = {};
  int num_threads = 0;         // 0 = physical cores that this process may use
  int max_batch_tokens = 512;  // tokens per step over all sequences
  std::string isa = {};        // forced ISA, or empty
  // When it becomes true, the next Step cancels every request instead of computing. May be set by a
  // signal handler. Null = none; must outlive the engine.
  const std::atomic<bool>* stop = nullptr;
};

struct EngineStats {
  int num_running = 0;  // have blocks
  int num_waiting = 0;
  int num_kept = 0;     // finished, cache kept for a continuation
  int kept_blocks = 0;  // that those hold; others get them when they need them
  int64_t steps = 0;
  int64_t computed_tokens = 0;  // fed to the model, recomputed ones included
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  double step_seconds = 0;  // inside Step
  KvCacheStats kv;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // kInvalidArgument: no prompt, prompt does not leave room for one token in max_model_len, token
  // or sampling parameter out of range.
  Result<RequestId> AddRequest(Request request);
  // What AddRequest refuses a request for. Reads only what never changes: any thread.
  Status CheckRequest(const Request& request) const;
  // Ends a request; its last output comes with the next Step. An id that is unknown or finished is
  // ignored.
  void Cancel(RequestId id);
  // Drops the cache kept for a finished request (Request::keep_cache). Ignored where there is none.
  void Release(RequestId id);
  // For Request::continue_from: whose kept cache holds most of the first tokens of this prompt;
  // empty where none does.
  std::optional<RequestId> FindContinuation(std::span<const int32_t> prompt) const;

  // One step of the model. Outputs of the requests that got a token or ended, in order of their
  // ids; may be empty while a long prompt is being computed.
  std::vector<RequestOutput> Step();
  // A request is waiting or running, or an output is pending.
  bool HasWork() const;

  const CachePlan& plan() const;
  const Ledger& ledger() const;  // what was planned at start-up, as `turboquant plan` prints it
  const Model& model() const;
  ModelRunner& runner();  // no steps of one's own while requests are running
  EngineStats stats() const;
  // For the log at start: model, ISA and kernels, formats, bits per value, bytes per token, pool,
  // tokens it holds, and the table of the ledger.
  std::vector<std::string> Describe() const;
  // What a user should know before relying on the cache: formats that cannot cope with this model.
  std::vector<std::string> Warnings() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_ENGINE_H_
