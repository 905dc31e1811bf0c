// From the model's shape and the user's options to the cache that will be built: one spec per
// layer, number of blocks, context per sequence. Pure arithmetic; refuses what cannot fit before
// anything is allocated.
#ifndef TURBOQUANT_PLANNER_CACHE_PLAN_H_
#define TURBOQUANT_PLANNER_CACHE_PLAN_H_

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
  // Tokens of the newest closed blocks that are read in int8 where codes are narrower (flag
  // --kv-recent-tokens); rounded up to whole blocks.
  int num_recent_tokens = 0;
  int max_num_seqs = 1;
  int max_model_len = 0;  // 0 = the model's, or what fits if that is less
  std::optional<uint64_t> kv_cache_memory =
      {};  // bytes for blocks, tails and sinks; empty = by memory_utilization
  double memory_utilization =
      0.9;  // share of usable memory that weights, cache and buffers may take together
};

// What the machine has, as the plan needs it (planner/host.h).
struct MemoryBudget {
  uint64_t usable_bytes = 0;    // what this process could hold in all
  uint64_t reserved_bytes = 0;  // of that, for weights and buffers
};

// What the cache must know of a model: one entry per layer that stores K and V.
struct KvLayerHeads {
  int num_kv_heads = 0;
  int head_dim = 0;  // channels per head, of K and of V
};
struct CacheModel {
  std::vector<KvLayerHeads> layers;
  int max_context = 0;  // as trained; 0 = the model does not say
};
CacheModel CacheModelOf(const ModelConfig& model);

struct CachePlan {
  KvCacheConfig config;
  int max_model_len = 0;
  int max_num_seqs = 1;
  uint64_t block_bytes = 0;     // one block, all layers
  uint64_t pool_bytes = 0;      // config.num_blocks * block_bytes
  uint64_t sequence_bytes = 0;  // tails, sinks and recent copies of max_num_seqs sequences
  double bits_per_value = 0;    // of closed blocks, mean over layers and sides, weighted by values
  double bytes_per_token = 0;   // of closed blocks, all layers
  uint64_t f16_bytes_per_token = 0;
  std::string formats;  // "int8/int8 per_token_head", layer groups joined by ", "
  std::vector<std::string>
      notes;  // what an alias was mapped to, a context cut to the memory: for the log
  // Tokens that fit in the pool, whole blocks.
  int64_t PoolTokens() const;
};

// kInvalidArgument or kUnsupported: a flag is wrong. kOutOfMemory: not even one sequence of
// max_model_len fits; says what would.
Result<CachePlan> PlanCache(const CacheModel& model, const CachePlanOptions& options,
                            const MemoryBudget& memory);
Result<CachePlan> PlanCache(const ModelConfig& model, const CachePlanOptions& options,
                            const MemoryBudget& memory);

// The same with exactly what max_num_seqs sequences of max_model_len tokens (the model's where it
// is 0) need, whatever memory there is. pool_bytes saturates; config.num_blocks is what a pool can
// have at most where more are needed. kInvalidArgument, kUnsupported as above.
Result<CachePlan> PlanWithoutLimit(const CacheModel& model, const CachePlanOptions& options);

// Bytes that blocks, tails and sinks may take. kOutOfMemory: none are left, or fewer than
// --kv-cache-memory asks for.
Result<uint64_t> CacheBudget(const CachePlanOptions& options, const MemoryBudget& memory);

// Blocks that num_seqs sequences of max_model_len tokens hold at most: the newest tokens of each
// are in its tail, and the pool has one block at least.
int64_t BlocksNeeded(int block_size, int64_t max_model_len, int64_t num_seqs);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_CACHE_PLAN_H_
