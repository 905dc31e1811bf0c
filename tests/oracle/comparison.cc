#include "comparison.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace turboquant {

OracleTokens RunOracle(LlamaRun* llama, std::span<const int32_t> prompt) {
  OracleTokens result{
      .tokens = {prompt.begin(), prompt.end()}, .prompt_tokens = prompt.size(), .logits = {}};
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

void Comparison::Run(const OracleTokens& oracle, OurRun* ours, size_t chunk_tokens) {
  std::vector<float> logits;
  logits.reserve(oracle.logits.size());
  ours->Reset();
  const std::span<const int32_t> tokens(oracle.tokens);
  for (size_t at = 0; at < oracle.prompt_tokens; at += chunk_tokens) {
    ours->Feed(tokens.subspan(at, std::min(chunk_tokens, oracle.prompt_tokens - at)), &logits);
  }
  for (size_t at = oracle.prompt_tokens; at < tokens.size(); ++at)
    ours->Feed(tokens.subspan(at, 1), &logits);
  const int vocab = static_cast<int>(logits.size() / tokens.size());
  const Difference found = Compare(oracle.logits, logits, vocab);
  fmt::print(
      "{}: prompt of {} in chunks of {}, {} positions: largest difference {:.2g}, mean KL {:.2g}, "
      "same top {:.2f} %\n",
      what_, oracle.prompt_tokens, chunk_tokens, found.num_positions, found.max_abs, found.mean_kl,
      100 * found.same_top);
  EXPECT_LE(found.max_abs, bounds_.max_abs) << what_;
  EXPECT_LE(found.mean_kl, bounds_.mean_kl) << what_;
  num_same_top_ += found.same_top * static_cast<double>(found.num_positions);
  num_positions_ += static_cast<double>(found.num_positions);
}

void Comparison::ExpectSameTop() const {
  ASSERT_GT(num_positions_, 0);
  EXPECT_GE(num_same_top_ / num_positions_, bounds_.same_top) << what_;
}

}  // namespace turboquant
