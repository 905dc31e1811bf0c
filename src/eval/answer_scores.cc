#include "eval/answer_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"

namespace turboquant {
namespace {

using Tokens = std::vector<int32_t>;
constexpr size_t kMaxOrder = 4;
using Ngram = std::array<int32_t, kMaxOrder>;

std::map<Ngram, int> CountNgrams(const Tokens& tokens, size_t order) {
  std::map<Ngram, int> counts;
  for (size_t at = 0; at + order <= tokens.size(); ++at) {
    Ngram ngram = {};
    std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(at), order, ngram.begin());
    ++counts[ngram];
  }
  return counts;
}

struct Matches {
  int64_t correct = 0, total = 0;
};

// An n-gram of the answer counts as often as the reference has it.
Matches MatchNgrams(std::span<const Tokens> references, std::span<const Tokens> answers,
                    size_t order) {
  Matches matches;
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto expected = CountNgrams(references[i], order);
    for (const auto& [ngram, count] : CountNgrams(answers[i], order)) {
      const auto it = expected.find(ngram);
      matches.correct += it == expected.end() ? 0 : std::min(count, it->second);
      matches.total += count;
    }
  }
  return matches;
}

double NumTokens(std::span<const Tokens> answers) {
  size_t count = 0;
  for (const Tokens& answer : answers) count += answer.size();
  return static_cast<double>(count);
}

}  // namespace

double CorpusBleu(std::span<const Tokens> references, std::span<const Tokens> answers) {
  CHECK_EQ(references.size(), answers.size());
  double log_precisions = 0, smoothing = 1;
  for (size_t order = 1; order <= kMaxOrder; ++order) {
    const Matches matches = MatchNgrams(references, answers, order);
    // Without a single token in common no pair is either.
    if (matches.total == 0 || (order == 1 && matches.correct == 0)) return 0;
    if (matches.correct == 0) smoothing *= 2;
    const double correct =
        matches.correct > 0 ? static_cast<double>(matches.correct) : 1 / smoothing;
    log_precisions += std::log(correct / static_cast<double>(matches.total));
  }
  const double expected = NumTokens(references), found = NumTokens(answers);
  const double brevity = found < expected ? 1 - expected / found : 0;
  return 100 * std::exp(brevity + log_precisions / kMaxOrder);
}

double RougeL(std::span<const int32_t> reference, std::span<const int32_t> answer) {
  if (reference.empty() && answer.empty()) return 1;
  std::vector<int> row(answer.size() + 1, 0);  // longest common with all prefixes of the answer
  for (const int32_t token : reference) {
    int diagonal = 0;
    for (size_t j = 1; j <= answer.size(); ++j) {
      const int above = row[j];
      row[j] = token == answer[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  // 2 P R / (P + R) with P and R the common length over each length.
  return 2.0 * row.back() / static_cast<double>(reference.size() + answer.size());
}

double MeanRougeL(std::span<const Tokens> references, std::span<const Tokens> answers) {
  CHECK_EQ(references.size(), answers.size());
  CHECK(!answers.empty());
  double sum = 0;
  for (size_t i = 0; i < answers.size(); ++i) sum += RougeL(references[i], answers[i]);
  return sum / static_cast<double>(answers.size());
}

}  // namespace turboquant
