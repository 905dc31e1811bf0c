#include "codec/kv_cache_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace turboquant {
namespace {

KvCacheSpec MakeSpec(std::string_view dtype, std::string_view granularity, int num_kv_heads,
                     int head_dim, int block_size) {
  const auto pair = ParseKvFormat(dtype, granularity, "", nullptr);
  EXPECT_TRUE(pair) << pair.error().message;
  return {.k = pair->k,
          .v = pair->v,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .block_size = block_size};
}

TEST(KvCacheSpecTest, EveryHeadAndBlockSizeIsAccepted) {
  for (int head_dim : {16, 64, 80, 96, 112, 128, 192, 256, 512}) {
    for (int block_size : {16, 32, 64, 128, 256}) {
      for (KvCacheDtype dtype : kAllKvCacheDtypes) {
        const KvCacheSpec spec = MakeSpec(Name(dtype), "", 3, head_dim, block_size);
        // int5 and int3 are packed 32 at a time.
        const bool fits = (dtype != KvCacheDtype::kInt5 && dtype != KvCacheDtype::kInt3) ||
                          (head_dim % 32 == 0 && block_size % 32 == 0);
        EXPECT_EQ(spec.Validate().has_value(), fits) << spec.ToString();
      }
    }
  }
}

// The whole matrix of format and granularity.
TEST(KvCacheSpecTest, CombinationsThatExist) {
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    const bool plain = CodeBits(dtype) >= 16;
    const bool fp8 = dtype == KvCacheDtype::kFp8E4m3 || dtype == KvCacheDtype::kFp8E5m2;
    const bool asym = dtype == KvCacheDtype::kInt4Asym;
    const bool narrow = IsNarrow(dtype), scaled = !plain && !narrow;
    for (const auto& [text, exists] :
         {std::pair{"none", plain || fp8}, std::pair{"per_tensor", scaled && !asym},
          std::pair{"per_head", scaled && !asym}, std::pair{"per_channel", scaled && !asym},
          std::pair{"per_token_head", scaled},
          std::pair{"per_token_head_u8", narrow || dtype == KvCacheDtype::kInt8},
          std::pair{"per_group:32", scaled}, std::pair{"per_group:64", scaled},
          std::pair{"per_group:128", scaled}}) {
      const auto pair = ParseKvFormat(Name(dtype), text, "", nullptr);
      ASSERT_EQ(pair.has_value(), exists) << Name(dtype) << " " << text;
      if (!exists) {
        EXPECT_EQ(pair.error().code, ErrorCode::kUnsupported);
        continue;
      }
      const KvCacheSpec spec = MakeSpec(Name(dtype), text, 2, 128, 64);
      EXPECT_TRUE(spec.Validate()) << spec.ToString();
    }
  }
}

TEST(KvCacheSpecTest, BadSpecsAreRefusedWithTheReason) {
  const KvCacheSpec good = MakeSpec("int8", "per_group:32", 3, 64, 64);
  ASSERT_TRUE(good.Validate());
  const auto expect_error = [&](auto change, std::string_view part) {
    KvCacheSpec spec = good;
    change(spec);
    const Status status = spec.Validate();
    ASSERT_FALSE(status) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  expect_error([](KvCacheSpec& s) { s.num_kv_heads = 0; }, "0 KV heads");
  expect_error([](KvCacheSpec& s) { s.num_kv_heads = -1; }, "-1 KV heads");
  expect_error([](KvCacheSpec& s) { s.num_kv_heads = 5000; }, "5000 KV heads");
  expect_error([](KvCacheSpec& s) { s.head_dim = 72; }, "heads of 72 channels are not supported");
  expect_error([](KvCacheSpec& s) { s.head_dim = 0; }, "multiples of 16");
  expect_error([](KvCacheSpec& s) { s.head_dim = 528; }, "up to 512");
  expect_error([](KvCacheSpec& s) { s.block_size = 48; }, "16, 32, 64, 128 or 256");
  expect_error([](KvCacheSpec& s) { s.block_size = 512; }, "blocks of 512 tokens");
  expect_error([](KvCacheSpec& s) { s.head_dim = 80; }, "do not divide the head of 80");
  expect_error([](KvCacheSpec& s) { s.v.group_size = 16; }, "groups of 16 channels");
  expect_error([](KvCacheSpec& s) { s.v.group_size = 0; }, "groups of 0 channels");
  expect_error(
      [](KvCacheSpec& s) { s.k = {.granularity = ScaleGranularity::kPerHead, .group_size = 32}; },
      "goes with per_group only");
  expect_error([](KvCacheSpec& s) { s.v = {.dtype = KvCacheDtype::kF16}; },
               "f16 has no scale granularity per_token_head: it takes none");
  expect_error(
      [](KvCacheSpec& s) {
        s.k = {.dtype = KvCacheDtype::kInt4Asym, .granularity = ScaleGranularity::kPerHead};
      },
      "it takes per_token_head, per_group:32|64|128");
  expect_error([](KvCacheSpec& s) { s.k.fixed = true; }, "fixed goes with static scales only");
  expect_error([](KvCacheSpec& s) { s.v.transform = KvTransform::kBalanced; },
               "balanced is a transform of K");
  expect_error([](KvCacheSpec& s) { s.v.transform = KvTransform::kCentered; },
               "centered is a transform of K");
  expect_error(
      [](KvCacheSpec& s) {
        s = MakeSpec("int5", "", 1, 64, 64);
        s.head_dim = 80;
      },
      "int5 wants heads of a multiple of 32 channels, not 80");
  expect_error(
      [](KvCacheSpec& s) {
        s = MakeSpec("int8/int3", "", 1, 80, 64);
        s.block_size = 16;
      },
      "int3 wants blocks of a multiple of 32 tokens, not 16");
}

TEST(ParseKvFormatTest, DefaultsAndSides) {
  for (const auto& [dtype, granularity, text] :
       {std::tuple{"int8", "", "int8/int8 per_token_head_u8 centered/rotated"},
        std::tuple{"int8", "per_token_head", "int8/int8 per_token_head rotated"},
        std::tuple{"int6/int4", "", "int6/int4 per_token_head_u8 centered/rotated"},
        std::tuple{"fp8_e4m3", "", "fp8_e4m3/fp8_e4m3 none rotated"},
        std::tuple{"f16", "", "f16/f16 none"},
        std::tuple{"int8/int4", "", "int8/int4 per_token_head_u8 centered/rotated"},
        std::tuple{"int8/int4_sym", "per_group:32", "int8/int4_sym per_group:32 rotated"},
        std::tuple{"int8/int4_sym", "per_token_head/per_group:64",
                   "int8/int4_sym per_token_head/per_group:64 rotated"},
        std::tuple{"int8/f16", "per_head", "int8/f16 per_head/none rotated/none"},
        std::tuple{"int8/f16", "", "int8/f16 per_token_head_u8/none centered/none"},
        std::tuple{"f16/int8", "per_head", "f16/int8 none/per_head none/rotated"},
        std::tuple{"f16/int8", "none/per_channel", "f16/int8 none/per_channel"},
        std::tuple{"int8", "per_channel/per_token_head",
                   "int8/int8 per_channel/per_token_head none/rotated"},
        std::tuple{"q8_0/Q4_1", "",
                   "int8/int4_asym per_token_head_u8/per_token_head centered/rotated"}}) {
    const KvCacheSpec spec = MakeSpec(dtype, granularity, 1, 64, 64);
    EXPECT_EQ(spec.ToString(), text);
  }
}

TEST(ParseKvFormatTest, Transforms) {
  for (const auto& [dtype, granularity, transform, text] :
       {std::tuple{"int8", "", "none", "int8/int8 per_token_head_u8"},
        std::tuple{"int8", "", "rotated", "int8/int8 per_token_head_u8 rotated"},
        std::tuple{"int8", "", "rotated/none", "int8/int8 per_token_head_u8 rotated/none"},
        std::tuple{"int8", "per_group:32", "centered", "int8/int8 per_group:32 centered/rotated"},
        std::tuple{"fp8_e4m3", "", "centered", "fp8_e4m3/fp8_e4m3 none centered/rotated"},
        std::tuple{"int8/f16", "", "rotated", "int8/f16 per_token_head_u8/none rotated/none"},
        std::tuple{"f16/int8", "", "none", "f16/int8 none/per_token_head_u8"},
        std::tuple{"f16", "", "none", "f16/f16 none"}}) {
    const auto pair = ParseKvFormat(dtype, granularity, transform, nullptr);
    ASSERT_TRUE(pair) << pair.error().message;
    const KvCacheSpec spec = {.k = pair->k, .v = pair->v, .num_kv_heads = 1, .head_dim = 64};
    EXPECT_EQ(spec.ToString(), text);
  }
  for (const auto& [dtype, granularity, transform, part] :
       {std::tuple{"int8", "", "hadamard", "unknown transform 'hadamard'"},
        std::tuple{"int8", "", "rotated/", "transform 'rotated/'"},
        std::tuple{"f16", "", "rotated", "f16 is not rotated"},
        std::tuple{"int8/f16", "", "none/rotated", "f16 is not rotated"},
        std::tuple{"int8", "per_channel", "rotated", "the model's own channels"},
        std::tuple{"int8", "per_head", "centered", "made for keys with their mean"}}) {
    const auto pair = ParseKvFormat(dtype, granularity, transform, nullptr);
    ASSERT_FALSE(pair) << dtype << ' ' << transform;
    EXPECT_NE(pair.error().message.find(part), std::string::npos) << pair.error().message;
  }
}

TEST(ParseKvFormatTest, NotesNameEveryAliasOnce) {
  std::vector<std::string> notes;
  ASSERT_TRUE(ParseKvFormat("q8_0", "", "", &notes));
  EXPECT_EQ(notes, std::vector<std::string>{"KV cache format 'q8_0' is taken as 'int8'"});
  notes.clear();
  ASSERT_TRUE(ParseKvFormat("q8_0/q4_0", "", "", &notes));
  EXPECT_EQ(notes.size(), 2u);
  notes.clear();
  ASSERT_TRUE(ParseKvFormat("int8/int4", "", "", &notes));
  EXPECT_TRUE(notes.empty());
}

TEST(ParseKvFormatTest, RefusesWithTheReason) {
  for (const auto& [dtype, granularity, part] :
       {std::tuple{"", "", "unknown KV cache format ''"}, std::tuple{"int8/", "", "'int8/'"},
        std::tuple{"/int8", "", "'/int8'"}, std::tuple{"int8/int8/int8", "", "want one for both"},
        std::tuple{"int9", "", "'int9'"},
        std::tuple{"int8", "per_token", "unknown scale granularity 'per_token'"},
        std::tuple{"int8", "per_group", "per_group:32|64|128"},
        std::tuple{"int8", "per_group:", "'per_group:'"},
        std::tuple{"int8", "per_group:64x", "'per_group:64x'"},
        std::tuple{"int8", "per_head:64", "'per_head:64'"},
        std::tuple{"int8", "per_head:", "per_head[:fixed]"},
        std::tuple{"int8", "per_token_head:fixed", "'per_token_head:fixed'"},
        std::tuple{"int8", "per_group:48", "groups of 48"},
        std::tuple{"int8", "per_group:-32", "groups of -32"},
        std::tuple{"f16", "per_head", "f16 has no scale granularity per_head"},
        std::tuple{"f16/int8", "per_head/per_head", "f16 has no scale granularity per_head"},
        std::tuple{"int8", "none", "int8 has no scale granularity none"},
        std::tuple{"int4_asym", "per_tensor", "int4_asym has no scale granularity"}}) {
    const auto pair = ParseKvFormat(dtype, granularity, "", nullptr);
    ASSERT_FALSE(pair) << dtype << " " << granularity;
    EXPECT_NE(pair.error().message.find(part), std::string::npos) << pair.error().message;
  }
}

// Worked by hand from docs/formats/block.md, for one head of 64 and 64 tokens: scales 2 bytes,
// lines CodeBits / 8.
TEST(KvBlockLayoutTest, OffsetsByHand) {
  // Byte scales of both sides, a mean of 64 bytes and 6 bytes that the tokens share: 198, padded to
  // 256.
  const KvBlockLayout centered(MakeSpec("int8", "", 3, 64, 64));
  EXPECT_EQ(centered.v_scales, 64u);
  EXPECT_EQ(centered.k_mean, 128u);
  EXPECT_EQ(centered.k_mean_scale, 192u);
  EXPECT_EQ(centered.k_scale_bias, 194u);
  EXPECT_EQ(centered.v_scale_bias, 196u);
  EXPECT_EQ(centered.k_lines, 256u);
  // The mean of narrow codes has 4 bits: 166, padded to 192.
  const KvBlockLayout narrow(MakeSpec("int6/int4", "", 3, 64, 64));
  EXPECT_EQ(narrow.k_mean_scale, 160u);
  EXPECT_EQ(narrow.k_lines, 192u);
  EXPECT_EQ(narrow.v_lines, 192u + 3072u);
  EXPECT_EQ(narrow.bytes_per_head, 192u + 3072u + 2048u);
  const KvBlockLayout int8(MakeSpec("int8", "per_token_head", 3, 64, 64));
  EXPECT_EQ(int8.k_scales, 0u);
  EXPECT_EQ(int8.v_scales, 128u);
  EXPECT_EQ(int8.k_lines, 256u);
  EXPECT_EQ(int8.v_lines, 256u + 4096u);
  EXPECT_EQ(int8.bytes_per_head, 256u + 8192u);
  // K: 2 groups of int4_asym, V: one int8 scale; 16 tokens: 64 + 32 + 64 = 160, padded to 192.
  const KvBlockLayout mixed(MakeSpec("int4_asym/int8", "per_group:32/per_token_head", 1, 64, 16));
  EXPECT_EQ(mixed.v_scales, 64u);
  EXPECT_EQ(mixed.k_zero_points, 96u);
  EXPECT_EQ(mixed.v_zero_points, 160u);
  EXPECT_EQ(mixed.k_lines, 192u);
  EXPECT_EQ(mixed.v_lines, 192u + 512u);
  EXPECT_EQ(mixed.bytes_per_head, 192u + 512u + 1024u);
  const KvBlockLayout f16(MakeSpec("f16", "", 1, 80, 16));
  EXPECT_EQ(f16.k_lines, 0u);
  EXPECT_EQ(f16.v_lines, 2560u);
  EXPECT_EQ(f16.bytes_per_head, 5120u);
}

TEST(KvCacheSpecTest, BytesAndBits) {
  const KvCacheSpec int8 = MakeSpec("int8", "", 3, 64, 64);
  EXPECT_EQ(int8.BytesPerBlock(), 3u * 8448u);
  EXPECT_DOUBLE_EQ(int8.BytesPerToken(), 396.0);
  EXPECT_DOUBLE_EQ(int8.BitsPerValue(), 8.25);
  EXPECT_DOUBLE_EQ(MakeSpec("int4_sym", "", 3, 64, 64).BitsPerValue(), 4.25);
  EXPECT_DOUBLE_EQ(MakeSpec("int4", "", 3, 64, 64).BitsPerValue(), 4.1875);
  EXPECT_DOUBLE_EQ(MakeSpec("int6", "", 3, 64, 64).BitsPerValue(), 6.1875);
  EXPECT_DOUBLE_EQ(MakeSpec("int6/int4", "", 3, 64, 64).BitsPerValue(), 5.1875);
  EXPECT_DOUBLE_EQ(MakeSpec("int2", "", 3, 64, 64).BitsPerValue(), 2.1875);
  EXPECT_DOUBLE_EQ(MakeSpec("int4_asym", "", 3, 64, 64).BitsPerValue(), 4.5);
  EXPECT_DOUBLE_EQ(MakeSpec("int8", "per_head", 3, 64, 64).BitsPerValue(), 8.0625);
  EXPECT_DOUBLE_EQ(MakeSpec("int8", "per_head:fixed", 3, 64, 64).BitsPerValue(), 8.0);
  EXPECT_DOUBLE_EQ(MakeSpec("fp8_e5m2", "", 3, 64, 64).BitsPerValue(), 8.0);
  EXPECT_DOUBLE_EQ(MakeSpec("int8/int4_sym", "per_token_head", 3, 64, 64).BitsPerValue(), 6.25);
  EXPECT_DOUBLE_EQ(MakeSpec("f32", "", 3, 64, 64).BitsPerValue(), 32.0);
  // Padding counts: one head of 80 and 16 tokens has 64 bytes of scales; one of K only has 32,
  // padded to 64.
  EXPECT_DOUBLE_EQ(MakeSpec("int8", "per_token_head", 1, 80, 16).BitsPerValue(),
                   8.0 + 8.0 * 64 / (2 * 80 * 16));
  EXPECT_DOUBLE_EQ(MakeSpec("int8/f16", "per_token_head", 1, 80, 16).BitsPerValue(),
                   12.0 + 8.0 * 64 / (2 * 80 * 16));
}

TEST(StaticScalesTest, OfHead) {
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  KvSideSpec side{.granularity = ScaleGranularity::kPerHead};
  EXPECT_EQ(ScalesOfHead(side, scales, 2, 64).head, 3.0f);
  EXPECT_EQ(ScalesOfHead(side, scales, 2, 64).channels, nullptr);
  side.granularity = ScaleGranularity::kPerChannel;
  EXPECT_EQ(ScalesOfHead(side, scales, 1, 3).channels, scales.data() + 3);
  EXPECT_EQ(ScalesOfHead(side, scales, 1, 3).head, 1.0f);
  side.granularity = ScaleGranularity::kPerTensor;
  EXPECT_EQ(ScalesOfHead(side, {7}, 5, 64).head, 7.0f);
  side.granularity = ScaleGranularity::kPerTokenHead;
  EXPECT_EQ(ScalesOfHead(side, {}, 5, 64).head, 1.0f);
}

TEST(StaticScalesTest, Validate) {
  const KvCacheSpec spec = MakeSpec("int8", "per_head/per_channel", 2, 16, 16);
  const KvStaticScales good{.k = {1, 2}, .v = std::vector<float>(32, 0.5f)};
  EXPECT_TRUE(ValidateStaticScales(spec, good));
  EXPECT_TRUE(ValidateStaticScales(MakeSpec("int8", "", 2, 16, 16), {}));
  EXPECT_FALSE(ValidateStaticScales(spec, {}));
  EXPECT_FALSE(ValidateStaticScales(MakeSpec("int8", "", 2, 16, 16), good));
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {0.0f, -1.0f, inf, std::nanf(""), 1e-40f, 3e38f}) {
    KvStaticScales scales = good;
    scales.v[17] = bad;
    const Status status = ValidateStaticScales(spec, scales);
    ASSERT_FALSE(status) << bad;
    EXPECT_NE(status.error().message.find("static V scale 17"), std::string::npos)
        << status.error().message;
  }
}

}  // namespace
}  // namespace turboquant
