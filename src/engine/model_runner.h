// One model with one cache: executes steps that mix prefill chunks and decodes of several
// sequences. One thread calls it.
#ifndef TURBOQUANT_ENGINE_MODEL_RUNNER_H_
#define TURBOQUANT_ENGINE_MODEL_RUNNER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/paged_attention.h"
#include "cache/kv_cache_manager.h"
#include "model/model.h"

namespace turboquant {

struct ModelRunnerOptions {
  KvCacheConfig cache = {};  // layers must match the model
  int num_threads = 1;
  int max_batch_tokens = 512;  // rows per step
  int max_context = 0;         // tokens of the longest sequence
  std::string isa = {};        // forced ISA or empty
};

// Tokens to feed to one sequence in a step; logits wanted for the last token, for all, or for none.
struct StepInput {
  SequenceId sequence;
  std::span<const int32_t> tokens;
  enum class Logits { kNone, kLast, kAll } logits = Logits::kLast;
};

class ModelRunner {
 public:
  // kInvalidArgument: options out of range, or a cache that does not fit the model; otherwise what
  // SelectKernels and KvCacheManager::Create refuse.
  static Result<std::unique_ptr<ModelRunner>> Create(std::shared_ptr<const Model> model,
                                                     ModelRunnerOptions options);
  ~ModelRunner();

  // Runs one step. The slots of every input must have been reserved with cache().AllocateSlots;
  // they are committed on return. Returns logits, rows in the order of the inputs:
  // [rows][vocab_size], valid until the next step.
  std::span<const float> Execute(std::span<const StepInput> inputs);

  KvCacheManager& cache();
  PagedAttention& attention();
  const Model& model() const;
  const KernelTable& kernels() const;
  int max_batch_tokens() const;
  // Held beside weights and cache so far: graph buffers, attention's staging and scratch, logits.
  size_t buffer_bytes() const;

 private:
  struct Impl;
  explicit ModelRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_MODEL_RUNNER_H_
