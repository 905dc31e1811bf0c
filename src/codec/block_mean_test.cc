#include "codec/block_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/half.h"

namespace turboquant {
namespace {

constexpr int kTokens = 64, kHeadDim = 80;

std::vector<float> Keys(float bias) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{kTokens} * kHeadDim);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random) + bias * std::sin(static_cast<float>(i % kHeadDim));
  }
  return x;
}

struct Centered {
  std::vector<float> x;
  std::vector<uint8_t> codes;
  uint16_t scale = 0;
  int bits;
  Centered(std::vector<float> keys, int mean_bits)
      : x(std::move(keys)),
        codes(static_cast<size_t>(kHeadDim * mean_bits / 8), 0xEE),
        bits(mean_bits) {
    CenterKeys({x.data(), kTokens, kHeadDim, bits, codes.data(), &scale});
  }
  float Mean(int channel) const {
    return HalfToFloat(scale) * static_cast<float>(MeanCode(codes.data(), bits, channel));
  }
};

// Nothing is lost: the stored mean and what is left make up the keys, within one rounding.
TEST(BlockMeanTest, TheRestAndTheMeanAreTheKeys) {
  for (const int bits : {8, 4}) {
    const std::vector<float> keys = Keys(100);
    const Centered centered(keys, bits);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float mean = centered.Mean(static_cast<int>(i) % kHeadDim);
      ASSERT_NEAR(centered.x[i] + mean, keys[i], 0x1p-22f * (std::fabs(keys[i]) + std::fabs(mean)));
    }
  }
}

// A bias hundred times the rest leaves the rest, and half a step of the stored mean.
TEST(BlockMeanTest, ABiasLeavesTheKeys) {
  for (const auto& [bits, largest] : {std::pair{8, 127}, std::pair{4, 7}}) {
    const Centered centered(Keys(100), bits);
    const float half_step = 0.5f * 102.0f / static_cast<float>(largest);
    for (int c = 0; c < kHeadDim; ++c) {
      float sum = 0;
      for (int t = 0; t < kTokens; ++t) sum += centered.x[static_cast<size_t>(t * kHeadDim + c)];
      EXPECT_LE(std::fabs(sum / kTokens), half_step);
    }
  }
}

TEST(BlockMeanTest, ZerosStayZeros) {
  const Centered centered(std::vector<float>(size_t{kTokens} * kHeadDim, 0.0f), 4);
  EXPECT_EQ(centered.scale, 0);
  for (const float x : centered.x) EXPECT_EQ(x, 0.0f);
  for (int c = 0; c < kHeadDim; ++c) EXPECT_EQ(centered.Mean(c), 0.0f);
}

TEST(BlockMeanTest, DotProductsByHand) {
  // Channels 0 .. 15 in 8 bytes: byte i has channel i below and channel 8 + i above, code + 8 each.
  uint8_t codes[8];
  for (uint8_t i = 0; i < 8; ++i) codes[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  std::vector<float> q(16, 0.0f);
  q[2] = 10;   // code 2 - 8
  q[8] = 100;  // code 15 - 8
  float out = 0;
  MeanDot({q.data(), 16, 1, 16, 4, codes, 0.5f, &out});
  EXPECT_EQ(out, 0.5f * (10 * -6 + 100 * 7));
}

}  // namespace
}  // namespace turboquant
