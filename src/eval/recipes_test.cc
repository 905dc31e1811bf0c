#include "eval/recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace turboquant {
namespace {

constexpr int kTokens = 64, kHeadDim = 64;

std::vector<float> Normal(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{kTokens} * kHeadDim);
  for (float& value : x) value = normal(random);
  return x;
}

Recipe Make(const std::string& name) {
  auto recipe = MakeRecipe("recipe:" + name, kHeadDim, kTokens, 4);
  EXPECT_TRUE(recipe) << recipe.error().message;
  return std::move(*recipe);
}

// Mean squared error over the mean square, sinks left out.
double RelativeError(const std::string& name, KvSide side) {
  const std::vector<float> x = Normal(7);
  std::vector<float> y = x;
  Make(name).rounding->OnClose(side, 1, y.data(), kTokens, kHeadDim);
  double error = 0, square = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto exact = static_cast<double>(x[i]);
    error += std::pow(exact - static_cast<double>(y[i]), 2);
    square += exact * exact;
  }
  return error / square;
}

// Least errors for a normal distribution (Max 1960): 0.1175, 0.03454, 0.009497 at 2, 3, 4 bits. A
// channel of a normalized head of 64 has shorter tails, hence up to 12 % less.
TEST(Recipes, LloydMaxLevelsHaveTheErrorOfTheTables) {
  const double errors[] = {RelativeError("turboquant_mse2", KvSide::kKey) / 0.1175,
                           RelativeError("turboquant_mse3", KvSide::kValue) / 0.03454,
                           RelativeError("turboquant_mse4", KvSide::kKey) / 0.009497};
  EXPECT_THAT(errors, testing::Each(testing::AllOf(testing::Gt(0.88), testing::Lt(1.0))));
}

// Differences of independent tokens have twice their variance, and their steps' errors do not add
// up: each difference is taken from what was stored.
TEST(Recipes, DifferencesOfIndependentTokensCostTwiceTheError) {
  const double plain = RelativeError("q4_0", KvSide::kKey);
  EXPECT_NEAR(RelativeError("q4_0_delta", KvSide::kKey) / plain, 2, 0.2);
}

// A uniform step s has the error s^2 / 12; the step follows from the mean extreme of 32 normal
// values (2.07, of their absolute values 2.38).
TEST(Recipes, StepsHaveTheErrorOfTheirSize) {
  EXPECT_NEAR(RelativeError("q8_0", KvSide::kKey), std::pow(2.38 / 127, 2) / 12, 4e-6);
  EXPECT_NEAR(RelativeError("q4_0", KvSide::kValue), std::pow(2.38 / 8, 2) / 12, 1.5e-3);
  EXPECT_NEAR(RelativeError("kivi4", KvSide::kKey), std::pow(2 * 2.07 / 15, 2) / 12, 1e-3);
  EXPECT_NEAR(RelativeError("kivi4", KvSide::kValue), std::pow(2 * 2.07 / 15, 2) / 12, 1e-3);
}

TEST(Recipes, KiviScalesKeysByChannelAndValuesByToken) {
  std::vector<float> x = Normal(3);
  for (size_t i = 0; i < x.size(); i += kHeadDim) x[i + 5] *= 1000;  // channel 5 is large
  for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
    std::vector<float> y = x;
    Make("kivi2").rounding->OnClose(side, 1, y.data(), kTokens, kHeadDim);
    double error = 0;  // of the other channels of its group
    for (size_t i = 0; i < x.size(); i += kHeadDim) {
      error += static_cast<double>(std::fabs(x[i + 6] - y[i + 6]));
    }
    if (side == KvSide::kKey) {
      EXPECT_LT(error / kTokens, 0.5);
    } else {
      EXPECT_GT(error / kTokens, 0.5);
    }
  }
}

// int8: a step of the row's extreme of 64 normal values (2.6) by 127. int4: less than the 0.0095
// that is least for one scale (Max 1960), since every row has a scale that was searched for it.
TEST(Recipes, OurCodecHasTheErrorOfItsCodes) {
  EXPECT_NEAR(RelativeError("int8", KvSide::kValue), std::pow(2.6 / 127, 2) / 12, 6e-6);
  EXPECT_NEAR(RelativeError("int8", KvSide::kKey), std::pow(2.6 / 127, 2) / 12, 6e-6);
  for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
    EXPECT_THAT(RelativeError("int4", side),
                testing::AllOf(testing::Gt(0.006), testing::Lt(0.0085)));
  }
}

TEST(Recipes, ZerosStayZeros) {
  for (const char* name : {"q8_0", "q4_0", "q4_0_rotated", "turboquant_mse4", "kivi4", "kivi2"}) {
    std::vector<float> x(size_t{kTokens} * kHeadDim, 0.0f);
    Make(name).rounding->OnClose(KvSide::kKey, 1, x.data(), kTokens, kHeadDim);
    EXPECT_THAT(x, testing::Each(0.0f)) << name;
  }
}

TEST(Recipes, SinksAndTokensStayExactUnlessAtOnce) {
  const std::vector<float> x = Normal(1);
  const size_t sinks = size_t{4} * kHeadDim;
  std::vector<float> y = x;
  const Recipe recipe = Make("q4_0");
  recipe.rounding->OnToken(KvSide::kKey, y.data(), kHeadDim);
  EXPECT_EQ(x, y);
  recipe.rounding->OnClose(KvSide::kKey, 0, y.data(), kTokens, kHeadDim);
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(sinks), y.begin()));
  EXPECT_NE(x[sinks], y[sinks]);

  const Recipe at_once = Make("q4_0_at_once");
  std::vector<float> row = x;
  at_once.rounding->OnToken(KvSide::kKey, row.data(), kHeadDim);
  EXPECT_NE(x[0], row[0]);
  const std::vector<float> stored = row;
  at_once.rounding->OnClose(KvSide::kKey, 0, row.data(), kTokens, kHeadDim);
  EXPECT_EQ(stored, row);
}

TEST(Recipes, BitsCountTheScales) {
  EXPECT_EQ(Make("q8_0").bits_per_value, 8.5);
  EXPECT_EQ(Make("q4_0_rotated").bits_per_value, 4.5);
  EXPECT_EQ(Make("turboquant_mse4").bits_per_value, 4.25);
  EXPECT_EQ(Make("kivi2").bits_per_value, 3.0);
  EXPECT_EQ(Make("int8").bits_per_value, 8.25);
}

TEST(Recipes, UnknownNamesAndShapesAreRefused) {
  const auto unknown = MakeRecipe("recipe:q9", 64, 64, 4);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, testing::HasSubstr("q4_0_rotated"));
  EXPECT_FALSE(MakeRecipe("recipe:q8_0", 80, 64, 4));
  EXPECT_FALSE(MakeRecipe("recipe:q8_0", 64, 16, 4));
}

}  // namespace
}  // namespace turboquant
