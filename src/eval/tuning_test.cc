#include "eval/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace turboquant {
namespace {

using testing::Each;
using testing::ElementsAre;

const SideCosts kWeights = {.k = {4, 1, 0.1}, .v = {4, 1, 0.1}};
const std::vector<double> kBits = {3, 4, 6};

TEST(Allocate, SpendsBitsWhereTheySaveMost) {
  const SideCosts sensitivities = {.k = {10, 1}, .v = {1, 1}};
  const auto at = [&](double budget) { return Allocate({sensitivities, kWeights, kBits}, budget); };
  EXPECT_THAT(at(3).k, Each(0u));
  EXPECT_THAT(at(3).v, Each(0u));
  // One bit for one of four sides.
  EXPECT_THAT(at(3.25).k, ElementsAre(1, 0));
  EXPECT_THAT(at(3.25).v, ElementsAre(0, 0));
  // 3 more bits: two for the sensitive side save (1 - 0.1) * 10 / 2 = 4.5 a bit, the first bit of
  // another side 3, equally for all of them.
  EXPECT_THAT(at(4).k, ElementsAre(2, 0));
  EXPECT_THAT(at(4).v, ElementsAre(1, 0));
  EXPECT_THAT(at(6).k, Each(2u));
  EXPECT_THAT(at(6).v, Each(2u));
}

TEST(Allocate, AFormatThatIsNoBetterIsPassedOver) {
  const SideCosts weights = {.k = {2, 3, 0.1}, .v = {1, 1, 1}};
  const SideCosts sensitivities = {.k = {1}, .v = {1}};
  const Allocation allocation = Allocate({sensitivities, weights, kBits}, 6);
  EXPECT_THAT(allocation.k, ElementsAre(2));
  EXPECT_THAT(allocation.v, ElementsAre(0));
}

TEST(Allocate, VStartsFromItsLeastFormat) {
  const SideCosts sensitivities = {.k = {10, 1}, .v = {0.001, 0.001}};
  // What V's one bit each takes is not there for K.
  const Allocation allocation = Allocate({sensitivities, kWeights, kBits, /*least_v=*/1}, 4);
  EXPECT_THAT(allocation.v, ElementsAre(1, 1));
  EXPECT_THAT(allocation.k, ElementsAre(1, 1));
  EXPECT_THAT(Allocate({sensitivities, kWeights, kBits}, 4).v, ElementsAre(0, 0));
}

TEST(Allocate, CheapestFormatsWhereNothingFits) {
  const SideCosts sensitivities = {.k = {1}, .v = {1}};
  EXPECT_THAT(Allocate({sensitivities, kWeights, kBits}, 1).k, ElementsAre(0));
}

}  // namespace
}  // namespace turboquant
