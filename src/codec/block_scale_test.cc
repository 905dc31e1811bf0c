#include "codec/block_scale.h"

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

BlockScale Measure(const std::vector<float>& x, HeadScales scales = {.head = kScale}) {
  const KvSideSpec side{.dtype = KvCacheDtype::kInt8,
                        .granularity = scales.channels == nullptr ? ScaleGranularity::kPerHead
                                                                  : ScaleGranularity::kPerChannel};
  return FitBlockScale({x.data(), kTokens, kHeadDim, side, scales});
}

TEST(BlockScaleTest, ValuesWithinTheRangeAreNotCorrected) {
  const BlockScale use = Measure(Values());
  EXPECT_FLOAT_EQ(use.reach, 0.5f);
  EXPECT_EQ(use.factor, kNoCorrection);
}

TEST(BlockScaleTest, AnOutlierWidensTheScaleUntilItFits) {
  for (const float reach : {1.21f, 3.0f, 3.0001f, 1000.0f}) {
    std::vector<float> x = Values();
    x[777] = -reach * kScale * 127;
    const BlockScale use = Measure(x);
    EXPECT_NEAR(use.reach, reach, reach * 1e-6f);
    const float factor = HalfToFloat(use.factor);
    EXPECT_GE(factor, use.reach);
    EXPECT_LE(factor, use.reach * 1.001f);
  }
}

TEST(BlockScaleTest, AFewValuesSlightlyBeyondTheRangeAreClipped) {
  std::vector<float> x = Values();
  for (size_t i = 0; i < 12; ++i) x[i * 64] = 1.19f * kScale * 127;
  EXPECT_EQ(Measure(x).factor, kNoCorrection);
  x[20 * 64] = 1.01f * kScale * 127;  // the 13th
  EXPECT_GE(HalfToFloat(Measure(x).factor), 1.19f);
}

TEST(BlockScaleTest, ScalesOfChannelsAreMeasuredByChannel) {
  std::vector<float> channels(kHeadDim, kScale);
  channels[5] = kScale / 8;
  std::vector<float> x = Values();
  const BlockScale use = Measure(x, {.channels = channels.data()});
  EXPECT_FLOAT_EQ(use.reach, 2.0f);  // channel 5 holds -0.25 of eight times its range
  std::array<float, kMaxHeadDimOfSpec> storage;
  const HeadScales corrected =
      ScaledBy({.channels = channels.data()}, use.factor, kHeadDim, &storage);
  EXPECT_FLOAT_EQ(corrected.channels[5], kScale / 4);
  EXPECT_FLOAT_EQ(corrected.channels[6], kScale * 2);
}

TEST(BlockScaleTest, WhatIsNotFiniteDoesNotCount) {
  std::vector<float> x = Values();
  x[3] = std::numeric_limits<float>::infinity();
  x[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FLOAT_EQ(Measure(x).reach, 0.5f);
}

TEST(BlockScaleTest, ReachIsBoundedByWhatTheBlockCanStore) {
  std::vector<float> x = Values();
  x[0] = 3e38f;
  const BlockScale use = Measure(x, {.head = 0x1p-100f});
  EXPECT_FLOAT_EQ(use.reach, 65504.0f);
  EXPECT_FLOAT_EQ(HalfToFloat(use.factor), 65504.0f);
}

TEST(BlockScaleTest, PerBlockTakesTheLargestFiniteValue) {
  const auto fit = [](const std::vector<float>& x) {
    const KvSideSpec side{.dtype = KvCacheDtype::kInt8, .granularity = ScaleGranularity::kPerBlock};
    return FitBlockScale({x.data(), kTokens, kHeadDim, side, {}});
  };
  std::vector<float> x = Values();
  x[100] = -3.0f;
  x[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fit(x).factor, FloatToHalf(3.0f / 127));
  EXPECT_EQ(fit(x).reach, 0);  // there is no range to stay in
  x[100] = 3e38f;
  EXPECT_EQ(HalfToFloat(fit(x).factor), 65504.0f);
  EXPECT_EQ(fit(std::vector<float>(x.size())).factor, 0);
}

}  // namespace
}  // namespace turboquant
