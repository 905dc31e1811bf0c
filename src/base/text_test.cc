#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace turboquant {
namespace {

TEST(TextTest, ParsesSizes) {
  for (const auto& [text, bytes] : {std::pair{"0", 0ull},
                                    {"512", 512ull},
                                    {"16k", 16000ull},
                                    {"16K", 16000ull},
                                    {"4Mi", 4ull << 20},
                                    {"1G", 1000000000ull},
                                    {"2GiB", 2ull << 30},
                                    {"7B", 7ull},
                                    {"1.5Ki", 1536ull},
                                    {".5k", 500ull},
                                    {"1Ti", 1ull << 40},
                                    {"3T", 3000000000000ull},
                                    {"9223372036854775807", 9223372036854775807ull}}) {
    const auto size = ParseSize(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(TextTest, RefusesWhatIsNotASize) {
  for (const char* text :
       {"", "k", "-1", "+1", "1x", "1kk", "1Mib", "1 k", "1..5k", ".", "9223372036854775808", "8Ei",
        "99999999Ti", "99999999.5Ti", "1e3", "0x10", "nan"}) {
    const auto size = ParseSize(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(size.error().message.find(std::string("'") + text + "'"), std::string::npos)
        << size.error().message;
  }
}

TEST(TextTest, FormatsBytes) {
  for (const auto& [bytes, text] : {std::pair{0ull, "0 B"},
                                    {1023ull, "1023 B"},
                                    {1024ull, "1.00 KiB"},
                                    {1536ull, "1.50 KiB"},
                                    {12900000ull, "12.3 MiB"},
                                    {1048575ull, "1.00 MiB"},
                                    {132070244352ull, "123 GiB"},
                                    {18446744073709551615ull, "16.0 EiB"}}) {
    EXPECT_EQ(FormatBytes(bytes), text);
  }
}

}  // namespace
}  // namespace turboquant
