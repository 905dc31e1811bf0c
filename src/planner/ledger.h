// The ledger: every byte that a model and its cache will take, before anything is loaded, and what
// follows from it. The engine's start-up, `turboquant plan` and `plan --verify` all take their
// figures from here.
#ifndef TURBOQUANT_PLANNER_LEDGER_H_
#define TURBOQUANT_PLANNER_LEDGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/footprint.h"
#include "planner/cache_plan.h"
#include "planner/cache_profile.h"
#include "planner/model_shape.h"

namespace turboquant {

struct LedgerOptions {
  EngineKind engine = EngineKind::kTurboquant;
  CachePlanOptions cache;  // block_size 0: the engine's default
  int tensor_parallel_size = 1;
  uint64_t usable_bytes = 0;              // what the process (or one rank) could hold in all
  std::optional<uint64_t> weights_bytes;  // instead of the model's own figure
};

// Buffers of a run beside weights and cache.
struct RunBuffers {
  uint64_t graphs = 0;     // of the largest step and of small ones, with ggml's scratch
  uint64_t attention = 0;  // staging and scratch
  uint64_t logits = 0;
  Origin origin = Origin::kExact;
  uint64_t total() const { return graphs + attention + logits; }
};

struct LedgerLine {
  std::string name;
  uint64_t bytes = 0;
  Origin origin = Origin::kExact;
  std::string note;
};

struct Ledger {
  ModelShape model;
  LedgerOptions options;
  std::shared_ptr<const CacheProfile> profile;
  int max_model_len = 0;  // tokens per sequence
  int max_num_seqs = 1;
  CacheBytes cache;         // of all those tokens at once
  uint64_t pool_bytes = 0;  // blocks, tails and sinks that our engine sets aside; of other engines
                            // cache.total()
  RunBuffers buffers;
  uint64_t runtime_bytes = 0;
  std::vector<LedgerLine> lines;  // what total_bytes is the sum of; weights first
  uint64_t total_bytes = 0;
  uint64_t limit_bytes = 0;        // what total_bytes may come to
  uint64_t cache_limit_bytes = 0;  // what cache.total() may come to
  std::vector<std::string> notes;
  // Our engine only: the cache that it builds, or why it refuses to start.
  std::optional<CachePlan> plan;
  std::optional<Error> refusal;

  uint64_t weights_bytes() const { return lines.at(0).bytes; }
  bool fits() const { return cache.total() <= cache_limit_bytes; }
};

// What ledgers are made of: one model, read or loaded once.
class LedgerSource {
 public:
  struct Settings {
    int max_batch_tokens = 512;
    int num_threads = 1;
  };
  // A GGUF (its header), a config.json, or a folder that holds one. Errors as ReadModelShape and
  // CheckStepLimits.
  static Result<LedgerSource> Open(const std::string& path, const Settings& settings);
  // Errors as CheckStepLimits.
  static Result<LedgerSource> Of(const Model& model, const Settings& settings);

  // A cache that does not fit is no error: the ledger says by how much. kInvalidArgument,
  // kUnsupported: a flag, or a layer that the engine cannot hold.
  Result<Ledger> Make(const LedgerOptions& options) const;

  const ModelShape& shape() const { return shape_; }

 private:
  Result<RunBuffers> Buffers(const LedgerOptions& options) const;

  Settings settings_;
  ModelShape shape_;
  std::optional<ModelConfig> config_;  // none: this build does not run the model
  ModelFootprint footprint_;           // where there is a config_
};

// Program, libraries, tokenizer, and bookkeeping of the pool: constants fitted to what a run holds
// (docs/how-to/size-a-machine.md).
uint64_t RuntimeBytes(const ModelShape& model, int64_t num_blocks);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_LEDGER_H_
