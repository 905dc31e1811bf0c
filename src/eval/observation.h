// Runs a model over texts to see what its keys and values look like.
#ifndef TURBOQUANT_EVAL_OBSERVATION_H_
#define TURBOQUANT_EVAL_OBSERVATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "calibration/statistics.h"
#include "model/model.h"

namespace turboquant {

struct ObservationOptions {
  int num_threads = 1;
  std::string isa;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(int64_t done, int64_t total)> progress;  // tokens; may be empty
};

// Every text as a sequence of its own, its tokens in order, through an f16 cache. Memory: a cache
// of the longest text. kInterrupted on stop; kInvalidArgument where there is no token.
Result<std::unique_ptr<KvStatistics>> ObserveModel(std::shared_ptr<const Model> model,
                                                   const std::vector<std::vector<int32_t>>& texts,
                                                   const ObservationOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_OBSERVATION_H_
