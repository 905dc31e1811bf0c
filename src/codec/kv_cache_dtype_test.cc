#include "codec/kv_cache_dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace turboquant {
namespace {

TEST(KvCacheDtypeTest, NamesGoThereAndBackWithoutNote) {
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    std::string note;
    const auto parsed = ParseKvCacheDtype(Name(dtype), &note);
    ASSERT_TRUE(parsed) << Name(dtype);
    EXPECT_EQ(*parsed, dtype);
    EXPECT_EQ(note, "");
  }
  EXPECT_EQ(*ParseKvCacheDtype("INT8", nullptr), KvCacheDtype::kInt8);
}

TEST(KvCacheDtypeTest, NamesOfOtherEnginesSayWhatTheyBecame) {
  for (const auto& [alias, dtype] :
       {std::pair{"q8_0", KvCacheDtype::kInt8}, std::pair{"q4_0", KvCacheDtype::kInt4},
        std::pair{"q5_0", KvCacheDtype::kInt5}, std::pair{"q4_1", KvCacheDtype::kInt4Asym},
        std::pair{"fp8", KvCacheDtype::kFp8E4m3}, std::pair{"fp8_e4m3fn", KvCacheDtype::kFp8E4m3},
        std::pair{"float8_e5m2", KvCacheDtype::kFp8E5m2}, std::pair{"float16", KvCacheDtype::kF16},
        std::pair{"half", KvCacheDtype::kF16}, std::pair{"bfloat16", KvCacheDtype::kBf16},
        std::pair{"FP32", KvCacheDtype::kF32}}) {
    std::string note;
    const auto parsed = ParseKvCacheDtype(alias, &note);
    ASSERT_TRUE(parsed) << alias;
    EXPECT_EQ(*parsed, dtype) << alias;
    EXPECT_EQ(note, "KV cache format '" + std::string(alias) + "' is taken as '" +
                        std::string(Name(dtype)) + "'");
    EXPECT_TRUE(ParseKvCacheDtype(alias, nullptr)) << alias;
  }
}

TEST(KvCacheDtypeTest, UnknownNamesListWhatIsKnown) {
  for (const char* text : {"", "auto", "int7", "int8 ", "fp8_e4m3fnuz", "q6_k"}) {
    const auto parsed = ParseKvCacheDtype(text, nullptr);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(parsed.error().message,
              "unknown KV cache format '" + std::string(text) +
                  "': known are f32, f16, bf16, int8, fp8_e4m3, fp8_e5m2, int6, int5, int4, int3, "
                  "int2, int4_sym, int4_asym");
  }
}

}  // namespace
}  // namespace turboquant
