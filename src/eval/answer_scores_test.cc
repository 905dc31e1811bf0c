// Against what sacrebleu and rouge-score say of the same tokens
// (tests/eval_reference/make_answer_scores.py).
#include "eval/answer_scores.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"

namespace turboquant {
namespace {

using Answers = std::vector<std::vector<int32_t>>;

TEST(AnswerScores, AreThoseOfTheLibraries) {
  const auto content =
      ReadFile(std::string(TURBOQUANT_SOURCE_DIR) + "/tests/eval_reference/answer_scores.json");
  ASSERT_TRUE(content) << content.error().message;
  const auto cases = nlohmann::json::parse(*content);
  ASSERT_GE(cases.size(), 19u);
  for (const auto& entry : cases) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto reference = entry["reference"].get<Answers>();
    const auto candidate = entry["candidate"].get<Answers>();
    // Both sum logarithms or quotients of a few terms in double.
    EXPECT_NEAR(CorpusBleu(reference, candidate), entry["bleu"].get<double>(), 1e-9);
    EXPECT_NEAR(MeanRougeL(reference, candidate), entry["rouge_l"].get<double>(), 1e-12);
  }
}

// The library gives 0 here; a cache that answers as the reference does has lost nothing.
TEST(AnswerScores, TwoEmptyAnswersAreTheSame) {
  EXPECT_EQ(RougeL({}, {}), 1.0);
  EXPECT_EQ(RougeL({}, std::vector<int32_t>{1}), 0.0);
}

}  // namespace
}  // namespace turboquant
