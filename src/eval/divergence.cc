#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace turboquant {
namespace {

struct LogSumExp {
  float max;
  double log_sum;  // of exp(x - max)
  size_t argmax;
};

LogSumExp Reduce(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - *top));
  return {*top, std::log(sum), static_cast<size_t>(top - logits.begin())};
}

// Value below which the share q of the sorted values lies (nearest rank).
double Quantile(const std::vector<double>& sorted, double q) {
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double BlockStandardError(std::span<const TokenDivergence> tokens) {
  constexpr size_t kBlock = 128;
  std::vector<double> means;
  for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
    double sum = 0;
    for (const TokenDivergence& token : tokens.subspan(at, kBlock)) sum += token.kl;
    means.push_back(sum / kBlock);
  }
  if (means.size() < 2) return 0;
  const auto n = static_cast<double>(means.size());
  double mean = 0, squares = 0;
  for (const double x : means) mean += x / n;
  for (const double x : means) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace

TokenDivergence CompareLogits(std::span<const float> reference, std::span<const float> candidate,
                              int32_t next) {
  CHECK_EQ(reference.size(), candidate.size());
  CHECK_LT(static_cast<size_t>(next), reference.size());
  const LogSumExp p = Reduce(reference), q = Reduce(candidate);
  // log p_i - log q_i = (x_i - max_p - log_sum_p) - (y_i - max_q - log_sum_q)
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i] - p.max) - p.log_sum;
    const double log_q = static_cast<double>(candidate[i] - q.max) - q.log_sum;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  const auto at = static_cast<size_t>(next);
  return {.kl = std::max(kl, 0.0),
          .same_top = p.argmax == q.argmax,
          .nll_reference = p.log_sum - static_cast<double>(reference[at] - p.max),
          .nll = q.log_sum - static_cast<double>(candidate[at] - q.max)};
}

double LogProbability(std::span<const float> logits, int32_t token) {
  const LogSumExp p = Reduce(logits);
  return static_cast<double>(logits[static_cast<size_t>(token)] - p.max) - p.log_sum;
}

DivergenceSummary Summarize(std::span<const TokenDivergence> tokens) {
  DivergenceSummary summary;
  if (tokens.empty()) return summary;
  const auto n = static_cast<double>(tokens.size());
  std::vector<double> kl;
  double kl_sum = 0, nll = 0, nll_reference = 0;
  int64_t same = 0;
  for (const TokenDivergence& token : tokens) {
    kl.push_back(token.kl);
    kl_sum += token.kl;
    nll += token.nll;
    nll_reference += token.nll_reference;
    same += token.same_top ? 1 : 0;
  }
  std::sort(kl.begin(), kl.end());
  summary.num_tokens = static_cast<int64_t>(tokens.size());
  summary.kl_mean = kl_sum / n;
  summary.kl_median = Quantile(kl, 0.5);
  summary.kl_p99 = Quantile(kl, 0.99);
  summary.kl_p999 = Quantile(kl, 0.999);
  summary.kl_max = kl.back();
  summary.kl_standard_error = BlockStandardError(tokens);
  summary.top1_agreement = static_cast<double>(same) / n;
  summary.perplexity = std::exp(nll / n);
  summary.perplexity_reference = std::exp(nll_reference / n);
  return summary;
}

}  // namespace turboquant
