#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace turboquant {
namespace {

TEST(CompareLogits, EqualsHandArithmetic) {
  // p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = 1/2 ln 2 + 0 - 1/4 ln 2
  const std::vector<float> p = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const std::vector<float> q = {std::log(0.25f), std::log(0.25f), std::log(0.5f)};
  const TokenDivergence d = CompareLogits(p, q, 2);
  EXPECT_NEAR(d.kl, 0.25 * std::log(2.0), 1e-7);
  EXPECT_FALSE(d.same_top);
  EXPECT_NEAR(d.nll_reference, std::log(4.0), 1e-6);
  EXPECT_NEAR(d.nll, std::log(2.0), 1e-6);
}

TEST(CompareLogits, ShiftChangesNothing) {
  const std::vector<float> p = {1, 2, 3}, q = {101, 102, 103};
  const TokenDivergence d = CompareLogits(p, q, 0);
  EXPECT_EQ(d.kl, 0);
  EXPECT_TRUE(d.same_top);
}

TEST(CompareLogits, LargeLogitsDoNotOverflow) {
  const std::vector<float> p = {1000, 0}, q = {0, 1000};
  EXPECT_NEAR(CompareLogits(p, q, 0).kl, 1000, 1e-6);
}

TEST(Summarize, QuantilesMeansAndPerplexity) {
  std::vector<TokenDivergence> tokens;
  for (int i = 1; i <= 1000; ++i)
    tokens.push_back({.kl = i * 1e-3, .same_top = i > 100, .nll_reference = 1, .nll = 2});
  const DivergenceSummary s = Summarize(tokens);
  EXPECT_EQ(s.num_tokens, 1000);
  EXPECT_NEAR(s.kl_mean, 0.5005, 1e-9);
  EXPECT_DOUBLE_EQ(s.kl_median, 0.5);
  EXPECT_DOUBLE_EQ(s.kl_p99, 0.99);
  EXPECT_DOUBLE_EQ(s.kl_p999, 0.999);
  EXPECT_DOUBLE_EQ(s.kl_max, 1.0);
  EXPECT_DOUBLE_EQ(s.top1_agreement, 0.9);
  EXPECT_NEAR(s.perplexity, std::exp(2.0), 1e-9);
  EXPECT_NEAR(s.perplexity_reference, std::exp(1.0), 1e-9);
}

TEST(Summarize, StandardErrorIsOverBlocks) {
  // Two blocks of 128 with means 0 and 2: mean 1, standard deviation sqrt(2), error sqrt(2) /
  // sqrt(2) = 1.
  std::vector<TokenDivergence> tokens(256);
  for (size_t i = 128; i < 256; ++i) tokens[i].kl = 2;
  EXPECT_NEAR(Summarize(tokens).kl_standard_error, 1.0, 1e-12);
}

TEST(Summarize, NoTokens) { EXPECT_EQ(Summarize({}).num_tokens, 0); }

}  // namespace
}  // namespace turboquant
