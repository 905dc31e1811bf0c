#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace turboquant {
namespace {

// Every 16-bit pattern survives the way to f32 and back; NaN becomes quiet and keeps its payload.
TEST(HalfTest, AllPatternsRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t half = static_cast<uint16_t>(i);
    const bool nan = (half & 0x7FFF) > 0x7C00;
    ASSERT_EQ(FloatToHalf(HalfToFloat(half)), nan ? half | 0x200 : half) << i;
    const bool bf16_nan = (half & 0x7FFF) > 0x7F80;
    ASSERT_EQ(FloatToBf16(Bf16ToFloat(half)), bf16_nan ? half | 0x40 : half) << i;
  }
}

// Values follow from the definition of the format: (-1)^s * m * 2^(e - 25).
TEST(HalfTest, ValuesByDefinition) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31;
    const int mantissa = i & 1023;
    if (exponent == 31) continue;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    const double value = (i & 0x8000) != 0 ? -magnitude : magnitude;
    ASSERT_EQ(static_cast<double>(HalfToFloat(static_cast<uint16_t>(i))), value) << i;
  }
}

// Between two neighbours: the midpoint goes to the even one, anything off it to the nearer one.
TEST(HalfTest, RoundsHalfToEven) {
  for (uint32_t i = 0; i < 0x7BFF; ++i) {
    const float low = HalfToFloat(static_cast<uint16_t>(i));
    const float high = HalfToFloat(static_cast<uint16_t>(i + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(FloatToHalf(middle), i + (i & 1)) << i;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), i) << i;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), i + 1) << i;
    ASSERT_EQ(FloatToHalf(-middle), 0x8000u + i + (i & 1)) << i;
  }
  for (uint32_t i = 0; i < 0x7F7F; ++i) {
    const float low = Bf16ToFloat(static_cast<uint16_t>(i));
    const float high = Bf16ToFloat(static_cast<uint16_t>(i + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(FloatToBf16(middle), i + (i & 1)) << i;
    ASSERT_EQ(FloatToBf16(std::nextafter(middle, 0.0f)), i) << i;
    ASSERT_EQ(FloatToBf16(std::nextafter(middle, std::numeric_limits<float>::infinity())), i + 1)
        << i;
  }
}

TEST(HalfTest, Ends) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(1e38f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-inf), 0xFC00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_EQ(HalfToFloat(0x7BFF), kMaxHalf);
  EXPECT_EQ(FloatToBf16(inf), 0x7F80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToBf16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace turboquant
