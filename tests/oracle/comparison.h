// One comparison of the acceptance: a prompt and 64 decode steps through libllama, then through our graph at several chunk
// sizes.
#ifndef TURBOQUANT_TESTS_ORACLE_COMPARISON_H_
#define TURBOQUANT_TESTS_ORACLE_COMPARISON_H_

#include <span>
#include <string>
#include <vector>

#include "runs.h"

namespace turboquant {

inline constexpr int kDecodeSteps = 64;

// What may differ. KL is the mean over all positions, same_top the least share of positions with the same likeliest token.
struct Bounds {
  float max_abs;
  double mean_kl;
  double same_top;
};
// F32 weights, f32 caches: the two differ by the order of summation in attention only.
inline constexpr Bounds kExactBounds = {1e-3f, 1e-9, 1.0};
// F32 weights, f16 caches on both sides.
inline constexpr Bounds kHalfBounds = {1e9f, 1e-4, 0.0};
// Quantized weights: a change of 1e-7 flips the rounding of activations to 8 bits, so that libllama differs from itself by
// KL ~ 5e-3 between its own settings (docs/decisions/ has the figures).
inline constexpr Bounds kQuantizedBounds = {1e9f, 1e-2, 0.96};

struct OracleTokens {
  std::vector<int32_t> tokens;  // prompt, then decode steps (libllama's own greedy choice)
  size_t prompt_tokens;
  std::vector<float> logits;    // libllama's, of every token
};
OracleTokens RunOracle(LlamaRun* llama, std::span<const int32_t> prompt);

// Feeds the same tokens to ours, the prompt in chunks of chunk_tokens; expects the logits within the bounds and prints what
// was found.
void ExpectSame(const OracleTokens& oracle, OurRun* ours, size_t chunk_tokens, const Bounds& bounds, const std::string& what);

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_ORACLE_COMPARISON_H_
