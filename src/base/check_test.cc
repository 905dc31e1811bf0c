#include "base/check.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

enum class Colour { kRed = 3, kBlue = 4 };

TEST(CheckTest, PassesAndEvaluatesOnce) {
  int calls = 0;
  const auto next = [&] { return ++calls; };
  CHECK(next() == 1);
  CHECK_EQ(next(), 2);
  CHECK_LT(next(), 4);
  CHECK_GE(size_t{5}, 5u);
  EXPECT_EQ(calls, 3);
}

TEST(CheckDeathTest, PrintsConditionAndBothValues) {
  EXPECT_DEATH(CHECK(1 > 2), "check_test.cc:.*CHECK failed: 1 > 2");
  const int a = 7, b = 9;
  EXPECT_DEATH(CHECK_EQ(a, b), "a == b \\(7 and 9\\)");
  EXPECT_DEATH(CHECK_GT(a, b), "a > b \\(7 and 9\\)");
  EXPECT_DEATH(CHECK_NE(Colour::kRed, Colour::kRed), "\\(3 and 3\\)");
  const int* null = nullptr;
  EXPECT_DEATH(CHECK_NE(null, nullptr), "null != nullptr");
}

TEST(CheckDeathTest, DcheckFollowsTheBuild) {
  int evaluated = 0;
  [[maybe_unused]] const auto touch = [&] { return ++evaluated; };
#ifdef NDEBUG
  DCHECK_EQ(touch(), 99);
  EXPECT_EQ(evaluated, 0);
#else
  EXPECT_DEATH(DCHECK_EQ(touch(), 99), "\\(1 and 99\\)");
#endif
}

}  // namespace
}  // namespace turboquant
