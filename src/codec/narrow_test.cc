#include "codec/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "codec/scale_fit.h"

namespace turboquant {
namespace {

constexpr KvCacheDtype kNarrow[] = {KvCacheDtype::kInt6, KvCacheDtype::kInt5, KvCacheDtype::kInt4,
                                    KvCacheDtype::kInt3, KvCacheDtype::kInt2};

TEST(NarrowTest, CodesRiseWithTheirLevelsAndAreSymmetric) {
  for (const KvCacheDtype dtype : kNarrow) {
    const NarrowFormat format = NarrowFormatOf(dtype);
    EXPECT_EQ(format.bits, CodeBits(dtype));
    const int last = (1 << format.bits) - 1;
    for (int code = 0; code <= last; ++code) {
      EXPECT_EQ(format.Level(code), -format.Level(last - code));
      if (code > 0) {
        EXPECT_LT(format.Level(code - 1), format.Level(code));
      }
    }
  }
}

TEST(NarrowTest, TheNearestLevelWinsAndBetweenTwoTheSmaller) {
  for (const KvCacheDtype dtype : kNarrow) {
    const NarrowFormat format = NarrowFormatOf(dtype);
    for (float x = -70; x <= 70; x += 0.25f) {
      const int code = QuantizeNarrow(format, x, 1.0f);
      const auto distance = [&](int c) {
        return std::fabs(x - static_cast<float>(format.Level(c)));
      };
      for (int other = 0; other < 1 << format.bits; ++other) {
        ASSERT_LE(distance(code), distance(other)) << Name(dtype) << " " << x;
        if (distance(code) == distance(other)) {
          ASSERT_LE(std::abs(format.Level(code)), std::abs(format.Level(other)));
        }
      }
    }
    EXPECT_EQ(QuantizeNarrow(format, std::nanf(""), 1.0f), format.half);
    EXPECT_EQ(QuantizeNarrow(format, -0.0f, 1.0f), format.half);
    EXPECT_EQ(QuantizeNarrow(format, -std::numeric_limits<float>::infinity(), 1.0f), 0);
  }
}

struct Fit {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  int16_t bias = 0;
  Fit(KvCacheDtype dtype, const std::vector<float>& x, int num_tokens)
      : codes(static_cast<size_t>(num_tokens)), scales(codes.size()) {
    FitScales({dtype, x.data(), num_tokens, static_cast<int>(x.size()) / num_tokens, codes.data(),
               &bias, scales.data()});
  }
};

// 64 Gaussian values of standard deviation 1 with 2^-8 .. 2^7 in front, per token.
std::vector<float> Gaussian(int num_tokens) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(num_tokens) * 64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random) * std::exp2(static_cast<float>(i / 64 % 16) - 8);
  }
  return x;
}

// What the choice of levels promises for Gaussian values, within the luck of 4096 of them.
TEST(ScaleFitTest, ErrorOfGaussianValues) {
  constexpr double kExpected[] = {0.00056, 0.00225, 0.0073, 0.0294, 0.112};
  const std::vector<float> x = Gaussian(256);
  for (size_t i = 0; i < std::size(kNarrow); ++i) {
    const NarrowFormat format = NarrowFormatOf(kNarrow[i]);
    const Fit fit(kNarrow[i], x, 256);
    double error = 0;
    for (size_t t = 0; t < 256; ++t) {
      const float scale = HalfToFloat(fit.scales[t]);
      double squared = 0, power = 0;
      for (size_t c = 0; c < 64; ++c) {
        const float value = x[t * 64 + c];
        const int code = QuantizeNarrow(format, value, 1 / scale);
        const double difference =
            static_cast<double>(value - scale * static_cast<float>(format.Level(code)));
        squared += difference * difference;
        power += static_cast<double>(value) * static_cast<double>(value);
      }
      error += squared / power / 256;
    }
    EXPECT_NEAR(error, kExpected[i], 0.06 * kExpected[i]) << Name(kNarrow[i]);
  }
}

TEST(ScaleFitTest, Int8ClipsNothing) {
  const std::vector<float> x = Gaussian(64);
  const Fit fit(KvCacheDtype::kInt8, x, 64);
  for (size_t t = 0; t < 64; ++t) {
    float amax = 0;
    for (size_t c = 0; c < 64; ++c) amax = std::max(amax, std::fabs(x[t * 64 + c]));
    const float ideal = amax / 127;
    const float scale = HalfToFloat(fit.scales[t]);
    EXPECT_GE(scale, ideal * (1 - 0x1p-10f));
    EXPECT_LE(scale, ideal * (1 + 0x1p-4f + 0x1p-10f));
  }
}

TEST(ScaleFitTest, RowsOfZerosAndTilesOfZeros) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kInt4}) {
    std::vector<float> x(16 * 64, 0.0f);
    for (const uint16_t scale : Fit(dtype, x, 16).scales) EXPECT_EQ(scale, 0);
    x[5 * 64] = 1000;  // beside it a row of zeros has the smallest scale there is
    const Fit fit(dtype, x, 16);
    EXPECT_GT(HalfToFloat(fit.scales[5]), 7.0f);
    EXPECT_LT(HalfToFloat(fit.scales[6]), 0.001f);
  }
}

TEST(ScaleFitTest, WhatIsNotFiniteIsPassedOver) {
  std::vector<float> x = Gaussian(16), odd = x;
  x[3] = x[70] = 0;
  odd[3] = std::numeric_limits<float>::infinity();
  odd[70] = std::nanf("");
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kInt6, KvCacheDtype::kInt3}) {
    const Fit a(dtype, x, 16), b(dtype, odd, 16);
    EXPECT_EQ(a.codes, b.codes);
    EXPECT_EQ(a.bias, b.bias);
  }
}

}  // namespace
}  // namespace turboquant
