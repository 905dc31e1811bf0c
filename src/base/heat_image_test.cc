#include "base/heat_image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace turboquant {
namespace {

TEST(HeatImageTest, Base64OfRfc4648) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64(std::string("\xFF\x00\xFE", 3)), "/wD+");
}

TEST(HeatImageTest, PixelsAreValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0, 1, 0.5f, 2, -1, nan};  // two rows of three
  const std::string html = HeatImage(values, 3, 10);
  EXPECT_NE(html.find("width=30 height=20"), std::string::npos) << html;
  // The last 8 of 1,086 bytes: lines of three and a byte of padding, the lower one first.
  const std::string lines({'\xFF', 0, 0, 0, 0, '\xFF', '\x80', 0});
  const std::string end = Base64(lines.substr(2));  // 1,080 bytes before are a multiple of three
  EXPECT_EQ(html.substr(html.size() - 2 - end.size()), end + "\">");
  EXPECT_EQ(html.size() - html.find(";base64,") - 8 - 2, 4u * (1086 / 3));
}

}  // namespace
}  // namespace turboquant
