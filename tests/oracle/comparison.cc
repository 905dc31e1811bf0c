#include "comparison.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace turboquant {

OracleTokens RunOracle(LlamaRun* llama, std::span<const int32_t> prompt) {
  OracleTokens result{.tokens = {prompt.begin(), prompt.end()}, .prompt_tokens = prompt.size(), .logits = {}};
  llama->Reset();
  llama->Feed(prompt, &result.logits);
  const auto vocab = static_cast<size_t>(llama->vocab_size());
  for (int step = 0; step < kDecodeSteps; ++step) {
    const int32_t next = Argmax(std::span<const float>(result.logits).last(vocab));
    result.tokens.push_back(next);
    llama->Feed({&next, 1}, &result.logits);
  }
  return result;
}

void ExpectSame(const OracleTokens& oracle, OurRun* ours, size_t chunk_tokens, const Bounds& bounds, const std::string& what) {
  std::vector<float> logits;
  logits.reserve(oracle.logits.size());
  ours->Reset();
  const std::span<const int32_t> tokens(oracle.tokens);
  for (size_t at = 0; at < oracle.prompt_tokens; at += chunk_tokens) {
    ours->Feed(tokens.subspan(at, std::min(chunk_tokens, oracle.prompt_tokens - at)), &logits);
  }
  for (size_t at = oracle.prompt_tokens; at < tokens.size(); ++at) ours->Feed(tokens.subspan(at, 1), &logits);
  const int vocab = static_cast<int>(logits.size() / tokens.size());
  const Difference found = Compare(oracle.logits, logits, vocab);
  fmt::print("{}: {} positions, chunks of {}: largest difference {:.2g}, mean KL {:.2g}, same top {:.2f} %\n", what,
             found.num_positions, chunk_tokens, found.max_abs, found.mean_kl, 100 * found.same_top);
  EXPECT_LE(found.max_abs, bounds.max_abs) << what;
  EXPECT_LE(found.mean_kl, bounds.mean_kl) << what;
  EXPECT_GE(found.same_top, bounds.same_top) << what;
}

}  // namespace turboquant
