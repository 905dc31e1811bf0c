// Measures between two next-token distributions, and their summary over many tokens.
#ifndef TURBOQUANT_EVAL_DIVERGENCE_H_
#define TURBOQUANT_EVAL_DIVERGENCE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace turboquant {

struct TokenDivergence {
  double kl = 0;          // KL(reference || candidate) in nats, computed in double, never below 0
  bool same_top = false;  // both have the same likeliest token
  double nll_reference = 0;  // -log p(next token), nats
  double nll = 0;
};
// reference, candidate: logits [vocab_size]; next: the token that follows in the text.
TokenDivergence CompareLogits(std::span<const float> reference, std::span<const float> candidate,
                              int32_t next);

// log p(token) of logits [vocab_size], nats.
double LogProbability(std::span<const float> logits, int32_t token);

struct DivergenceSummary {
  int64_t num_tokens = 0;
  double kl_mean = 0, kl_median = 0, kl_p99 = 0, kl_p999 = 0, kl_max = 0;
  double kl_standard_error = 0;  // over blocks of 128 tokens, since neighbours are not independent
  double top1_agreement = 0;     // share, 0..1
  double perplexity = 0, perplexity_reference = 0;
};
DivergenceSummary Summarize(std::span<const TokenDivergence> tokens);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_DIVERGENCE_H_
