#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace turboquant {
namespace {

std::vector<float> Rotated(const std::vector<float>& x, bool inverse) {
  std::vector<float> out(x.size());
  Rotate({.in = x.data(),
          .in_stride = x.size(),
          .out = out.data(),
          .out_stride = out.size(),
          .num_rows = 1,
          .head_dim = static_cast<int>(x.size()),
          .inverse = inverse});
  return out;
}

std::vector<float> Sample(int head_dim, int seed) {
  std::vector<float> x;
  for (int c = 0; c < head_dim; ++c) {
    x.push_back(static_cast<float>(std::sin(1.3 * c + seed)) * (c == 5 ? 20.0f : 1.0f));
  }
  return x;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

constexpr int kHeadDims[] = {16, 64, 80, 96, 112, 128, 192, 256, 512};

TEST(Rotation, Size) {
  EXPECT_EQ(RotationSize(64), 64);
  EXPECT_EQ(RotationSize(80), 16);
  EXPECT_EQ(RotationSize(96), 32);
  EXPECT_EQ(RotationSize(112), 16);
  EXPECT_EQ(RotationSize(192), 64);
  EXPECT_EQ(RotationSize(512), 512);
}

// Straight from the definition: entry (i, j) of Sylvester's matrix is (-1)^popcount(i & j).
TEST(Rotation, IsTheSignedHadamardMatrix) {
  for (const int head_dim : kHeadDims) {
    const std::vector<float> x = Sample(head_dim, 1), y = Rotated(x, false);
    const int n = RotationSize(head_dim);
    for (int c = 0; c < head_dim; ++c) {
      double expected = 0, magnitude = 0;
      for (int j = 0; j < n; ++j) {
        const auto from = static_cast<size_t>(c / n * n + j);
        const double term =
            static_cast<double>(x[from] * kRotationSigns[from]) / std::sqrt(static_cast<double>(n));
        expected += __builtin_popcount(static_cast<unsigned>(c % n) & static_cast<unsigned>(j)) % 2
                        ? -term
                        : term;
        magnitude += std::fabs(term);
      }
      EXPECT_NEAR(static_cast<double>(y[static_cast<size_t>(c)]), expected, 0x1p-20 * magnitude)
          << head_dim << ' ' << c;
    }
  }
}

TEST(Rotation, InverseAndDotProducts) {
  for (const int head_dim : kHeadDims) {
    const std::vector<float> x = Sample(head_dim, 1), y = Sample(head_dim, 2);
    const std::vector<float> back = Rotated(Rotated(x, false), true);
    for (size_t c = 0; c < x.size(); ++c) EXPECT_NEAR(back[c], x[c], 1e-5) << head_dim << ' ' << c;
    EXPECT_NEAR(Dot(Rotated(x, false), Rotated(y, false)), Dot(x, y), 1e-4) << head_dim;
  }
}

TEST(Rotation, SpreadsAnOutlierAndSignsKeepConstantsApart) {
  std::vector<float> spike(64, 0.0f);
  spike[7] = 8;
  for (const float y : Rotated(spike, false)) EXPECT_EQ(std::fabs(y), 1.0f);
  float largest = 0;
  for (const float y : Rotated(std::vector<float>(64, 1.0f), false)) {
    largest = std::max(largest, std::fabs(y));
  }
  EXPECT_LT(largest, 4.0f);  // 8 without signs
}

TEST(Rotation, RowsInPlace) {
  const std::vector<float> x = Sample(64, 1), y = Sample(64, 2);
  std::vector<float> rows(2 * 70, 99.0f);
  std::copy(x.begin(), x.end(), rows.begin());
  std::copy(y.begin(), y.end(), rows.begin() + 70);
  Rotate({.in = rows.data(),
          .in_stride = 70,
          .out = rows.data(),
          .out_stride = 70,
          .num_rows = 2,
          .head_dim = 64,
          .inverse = false});
  EXPECT_EQ(std::vector<float>(rows.begin(), rows.begin() + 64), Rotated(x, false));
  EXPECT_EQ(std::vector<float>(rows.begin() + 70, rows.begin() + 134), Rotated(y, false));
  EXPECT_EQ(rows[64], 99.0f);
  EXPECT_EQ(rows[139], 99.0f);
}

}  // namespace
}  // namespace turboquant
