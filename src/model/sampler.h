// Sampling of one sequence by libllama's samplers on our logits. Seeded: same seed, parameters and
// logits, same tokens.
#ifndef TURBOQUANT_MODEL_SAMPLER_H_
#define TURBOQUANT_MODEL_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "model/tokenizer.h"

namespace turboquant {

struct SamplingParams {
  uint64_t seed = 0;
  float temperature = 0;  // 0 = greedy
  float top_p = 1, min_p = 0;
  int top_k = 0;  // 0 = off
  float repetition_penalty = 1;
  [[nodiscard]] Status Validate() const;
};

class Sampler {
 public:
  Sampler(const Tokenizer& tokenizer, const SamplingParams& params);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  // logits: [vocab_size]. NaN logits, or none that is finite, are kCorrupt, never a silent token.
  // The token returned counts for the repetition penalty from then on.
  Result<int32_t> Sample(std::span<const float> logits);
  // A token of the prompt, which counts for the repetition penalty too.
  void Accept(int32_t token);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_SAMPLER_H_
