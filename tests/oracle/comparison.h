// One comparison of the acceptance: a prompt and 64 decode steps through libllama, then through our
// graph at several chunk sizes.
#ifndef TURBOQUANT_TESTS_ORACLE_COMPARISON_H_
#define TURBOQUANT_TESTS_ORACLE_COMPARISON_H_

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runs.h"

namespace turboquant {

inline constexpr int kDecodeSteps = 64;

// What may differ: the logits and the mean KL in every run; the share of positions with the same
// likeliest token over all runs of a model together, since in one run of 97 positions a share of 98
// % has a standard deviation of 1.4 %.
struct Bounds {
  float max_abs;
  double mean_kl;
  double same_top;
};
// F32 weights, f32 caches: the two differ by the order of summation in attention only.
inline constexpr Bounds kExactBounds = {1e-3f, 1e-9, 1.0};
// F32 weights, f16 caches on both sides.
inline constexpr Bounds kHalfBounds = {1e9f, 1e-4, 0.0};
// Quantized weights: a change of 1e-7 flips the rounding of activations to 8 bits, so that libllama
// differs from itself by KL ~ 5e-3 between its own settings (docs/decisions/ has the figures).
inline constexpr Bounds kQuantizedBounds = {1e9f, 1e-2, 0.96};

struct OracleTokens {
  std::vector<int32_t> tokens;  // prompt, then decode steps (libllama's own greedy choice)
  size_t prompt_tokens;
  std::vector<float> logits;  // libllama's, of every token
};
OracleTokens RunOracle(LlamaRun* llama, std::span<const int32_t> prompt);

// The runs of one model under one set of bounds.
class Comparison {
 public:
  Comparison(std::string what, const Bounds& bounds) : what_(std::move(what)), bounds_(bounds) {}
  // Feeds the same tokens to ours, the prompt in chunks of chunk_tokens; prints what differs.
  void Run(const OracleTokens& oracle, OurRun* ours, size_t chunk_tokens);
  // After the last run.
  void ExpectSameTop() const;

 private:
  std::string what_;
  Bounds bounds_;
  double num_same_top_ = 0, num_positions_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_ORACLE_COMPARISON_H_
