// What a step may be asked to do, checked before anything is sized by it.
#ifndef TURBOQUANT_MODEL_STEP_LIMITS_H_
#define TURBOQUANT_MODEL_STEP_LIMITS_H_

#include "base/error.h"

namespace turboquant {

inline constexpr int kMaxThreads = 512;        // what ggml takes
inline constexpr int kMaxBatchTokens = 65536;  // rows of a step; buffers grow with it

// kInvalidArgument unless both are from 1 to the limit.
[[nodiscard]] inline Status CheckStepLimits(int max_batch_tokens, int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return Fail(ErrorCode::kInvalidArgument, "{} threads: must be 1 to {}", num_threads,
                kMaxThreads);
  }
  if (max_batch_tokens < 1 || max_batch_tokens > kMaxBatchTokens) {
    return Fail(ErrorCode::kInvalidArgument, "{} tokens per step: must be 1 to {}",
                max_batch_tokens, kMaxBatchTokens);
  }
  return {};
}

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_STEP_LIMITS_H_
