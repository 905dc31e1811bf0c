// From the model's shape and the user's options to the cache that will be built: one spec per
// layer, number of blocks, context per sequence. Pure arithmetic; refuses what cannot fit before
// anything is allocated.
#ifndef TURBOQUANT_ENGINE_CACHE_PLAN_H_
#define TURBOQUANT_ENGINE_CACHE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/kv_cache_manager.h"
#include "calibration/calibration_table.h"
#include "model/model.h"

namespace turboquant {

// Spellings are those of the flags (--kv-cache-dtype and so on).
struct CachePlanOptions {
  std::string kv_cache_dtype = "int8";     // "int8", "int8/int4", aliases of other engines
  std::string kv_scale_granularity = {};   // empty = the format's default
  std::string kv_transform = {};           // empty = the format's default
  std::string kv_cache_dtype_layers = {};  // overrides: "0-3:f16,28-29:int8/int4"; later ones win
  // Where static scales come from; made for this model (the caller has checked).
  std::shared_ptr<const CalibrationTable> calibration = {};
  int block_size = 64;
  int num_sink_tokens = 4;
  int max_num_seqs = 1;
  int max_model_len = 0;  // 0 = the model's, or what fits if that is less
  std::optional<uint64_t> kv_cache_memory =
      {};  // bytes for blocks, tails and sinks; empty = by memory_utilization
  double memory_utilization =
      0.9;  // share of usable memory that weights, cache and buffers may take together
};

// What the machine has, as the plan needs it (engine/host.h).
struct MemoryBudget {
  uint64_t usable_bytes = 0;    // what this process could hold in all
  uint64_t reserved_bytes = 0;  // of that, for weights and buffers
};

struct CachePlan {
  KvCacheConfig config;
  int max_model_len = 0;
  int max_num_seqs = 1;
  uint64_t block_bytes = 0;    // one block, all layers
  uint64_t pool_bytes = 0;     // config.num_blocks * block_bytes
  uint64_t exact_bytes = 0;    // tails and sinks of max_num_seqs sequences
  double bits_per_value = 0;   // of closed blocks, mean over layers and sides, weighted by values
  double bytes_per_token = 0;  // of closed blocks, all layers
  uint64_t f16_bytes_per_token = 0;
  std::string formats;  // "int8/int8 per_token_head", layer groups joined by ", "
  std::vector<std::string>
      notes;  // what an alias was mapped to, a context cut to the memory: for the log
  // Tokens that fit in the pool, whole blocks.
  int64_t PoolTokens() const;
};

// kInvalidArgument or kUnsupported: a flag is wrong. kOutOfMemory: not even one sequence of
// max_model_len fits; says what would.
Result<CachePlan> PlanCache(const ModelConfig& model, const CachePlanOptions& options,
                            const MemoryBudget& memory);

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_CACHE_PLAN_H_
