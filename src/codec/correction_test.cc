#include "codec/correction.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"

namespace turboquant {
namespace {

constexpr int kTokens = 64, kHeadDim = 64;  // 0.3 % are 12 values
constexpr float kScale = 0.03f;

// Values of half the range of int8 codes.
std::vector<float> Values() {
  std::vector<float> x(size_t{kTokens} * kHeadDim);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = (i % 2 == 0 ? 0.5f : -0.25f) * kScale * 127;
  }
  return x;
}

RangeUse Measure(const std::vector<float>& x, HeadScales scales = {.head = kScale}) {
  return MeasureRange({x.data(), kTokens, kHeadDim, KvCacheDtype::kInt8, scales});
}

TEST(CorrectionTest, ValuesWithinTheRangeAreNotCorrected) {
  const RangeUse use = Measure(Values());
  EXPECT_FLOAT_EQ(use.reach, 0.5f);
  EXPECT_EQ(use.correction, kNoCorrection);
}

TEST(CorrectionTest, AnOutlierWidensTheScaleUntilItFits) {
  for (const float reach : {1.21f, 3.0f, 3.0001f, 1000.0f}) {
    std::vector<float> x = Values();
    x[777] = -reach * kScale * 127;
    const RangeUse use = Measure(x);
    EXPECT_NEAR(use.reach, reach, reach * 1e-6f);
    const float factor = HalfToFloat(use.correction);
    EXPECT_GE(factor, use.reach);
    EXPECT_LE(factor, use.reach * 1.001f);
  }
}

TEST(CorrectionTest, AFewValuesSlightlyBeyondTheRangeAreClipped) {
  std::vector<float> x = Values();
  for (size_t i = 0; i < 12; ++i) x[i * 64] = 1.19f * kScale * 127;
  EXPECT_EQ(Measure(x).correction, kNoCorrection);
  x[20 * 64] = 1.01f * kScale * 127;  // the 13th
  EXPECT_GE(HalfToFloat(Measure(x).correction), 1.19f);
}

TEST(CorrectionTest, ScalesOfChannelsAreMeasuredByChannel) {
  std::vector<float> channels(kHeadDim, kScale);
  channels[5] = kScale / 8;
  std::vector<float> x = Values();
  const RangeUse use = Measure(x, {.channels = channels.data()});
  EXPECT_FLOAT_EQ(use.reach, 2.0f);  // channel 5 holds -0.25 of eight times its range
  std::array<float, kMaxHeadDimOfSpec> storage;
  const HeadScales corrected =
      Corrected({.channels = channels.data()}, use.correction, kHeadDim, &storage);
  EXPECT_FLOAT_EQ(corrected.channels[5], kScale / 4);
  EXPECT_FLOAT_EQ(corrected.channels[6], kScale * 2);
}

TEST(CorrectionTest, WhatIsNotFiniteDoesNotCount) {
  std::vector<float> x = Values();
  x[3] = std::numeric_limits<float>::infinity();
  x[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FLOAT_EQ(Measure(x).reach, 0.5f);
}

TEST(CorrectionTest, ReachIsBoundedByWhatTheBlockCanStore) {
  std::vector<float> x = Values();
  x[0] = 3e38f;
  const RangeUse use = Measure(x, {.head = 0x1p-100f});
  EXPECT_FLOAT_EQ(use.reach, 65504.0f);
  EXPECT_FLOAT_EQ(HalfToFloat(use.correction), 65504.0f);
}

}  // namespace
}  // namespace turboquant
