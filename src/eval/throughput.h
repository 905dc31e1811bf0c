// Speed of prefill and decode at depth, formats interleaved so that a noisy machine disturbs all
// alike.
#ifndef TURBOQUANT_EVAL_THROUGHPUT_H_
#define TURBOQUANT_EVAL_THROUGHPUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "planner/cache_plan.h"

namespace turboquant {

struct ThroughputOptions {
  std::vector<std::string> kv_cache_dtypes;  // measured side by side
  CachePlanOptions cache;                    // everything but the format
  std::vector<int> depths;                   // tokens in the cache before the test starts
  std::vector<int> batches;                  // sequences that run together
  int prompt_tokens = 512;                   // 0 = no prefill test
  int gen_tokens = 32;                       // 0 = no decode test
  int repetitions = 3;
  int num_threads = 1;
  int max_batch_tokens = 512;
  std::string isa;
  const std::atomic<bool>* stop = nullptr;
  // Called with tokens computed so far and in all; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct ThroughputRow {
  std::string test;  // "pp512" or "tg32"
  int depth = 0;
  int batch = 0;
  std::string kv_cache_dtype;
  std::vector<double> tokens_per_second;  // one per repetition, all sequences together
  size_t kv_bytes = 0;                    // held by the cache during the test
  double attention_gb_per_s = 0;  // decode only: cache bytes read per second of attention, median
  double Median() const;
  double Min() const;
  double Max() const;
};

// Tokens that the measurement will compute, for a progress line and an estimate.
int64_t TotalTokens(const ThroughputOptions& options);

// kOutOfMemory where the deepest test does not fit, kInterrupted on stop; otherwise the errors of
// PlanCache.
Result<std::vector<ThroughputRow>> MeasureThroughput(std::shared_ptr<const Model> model,
                                                     const ThroughputOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_THROUGHPUT_H_
