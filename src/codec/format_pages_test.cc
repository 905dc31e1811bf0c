// The worked examples of docs/formats, number by number.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "codec/fp8.h"
#include "codec/int4.h"
#include "codec/int8.h"
#include "codec/kv_cache_spec.h"
#include "codec/tile.h"

namespace turboquant {
namespace {

const std::vector<float> kRow = {0.5f, -1.25f, 3.0f, 0.01f};

void ExpectNear(const std::vector<float>& got, const std::vector<double>& page) {
  ASSERT_EQ(got.size(), page.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(got[i]), page[i], 6e-6) << i;
  }
}

TEST(FormatPages, Block) {
  const KvCacheSpec spec{.k = {}, .v = {}, .num_kv_heads = 1, .head_dim = 64, .block_size = 16};
  const KvBlockLayout layout(spec);
  EXPECT_EQ(layout.k_lines, 64u);
  EXPECT_EQ(layout.v_lines, 1088u);
  EXPECT_EQ(spec.BytesPerBlock(), 2112u);
  EXPECT_DOUBLE_EQ(spec.BitsPerValue(), 8.25);
  std::vector<float> x(16 * 64, 0.0f);
  std::ranges::copy(kRow, x.begin() + 5 * 64);
  AlignedBuffer<uint8_t> block(spec.BytesPerBlock());
  for (KvSide side : {KvSide::kKey, KvSide::kValue}) {
    const bool key = side == KvSide::kKey;
    EncodeTile({.shape = {side, 16, 64},
                .spec = {},
                .x = x.data(),
                .static_scales = {},
                .lines = block.data() + (key ? layout.k_lines : layout.v_lines),
                .scales = reinterpret_cast<uint16_t*>(block.data() +
                                                      (key ? layout.k_scales : layout.v_scales)),
                .zero_points = nullptr,
                .end_codes = nullptr});
  }
  EXPECT_EQ(block[10], 0x0C);
  EXPECT_EQ(block[11], 0x26);
  EXPECT_EQ(block[42], 0x0C);
  EXPECT_EQ(block[43], 0x26);
  const std::vector<uint8_t> k(block.data() + 64 + 20, block.data() + 64 + 24);
  EXPECT_EQ(k, (std::vector<uint8_t>{0x95, 0x4B, 0xFF, 0x80}));
  EXPECT_EQ(std::count(block.data() + 64, block.data() + 1088, 0x80), 1024 - 3);
  EXPECT_EQ(block[1345], 0x15);
  EXPECT_EQ(block[1349], 0xCB);
  EXPECT_EQ(block[1353], 0x7F);
  EXPECT_EQ(block[1357], 0x00);
  EXPECT_EQ(std::count(block.data() + 1088, block.data() + 2112, 0x00), 1024 - 3);
}

TEST(FormatPages, BytesOfABlock) {
  for (const auto& [dtype, granularity, bytes] : {std::tuple{"f32", "", 32768u},
                                                  std::tuple{"f16", "", 16384u},
                                                  std::tuple{"bf16", "", 16384u},
                                                  std::tuple{"int8", "", 8448u},
                                                  std::tuple{"int8", "per_token_head", 8448u},
                                                  std::tuple{"int6", "", 6336u},
                                                  std::tuple{"int5", "", 5312u},
                                                  std::tuple{"int4", "", 4288u},
                                                  std::tuple{"int3", "", 3264u},
                                                  std::tuple{"int2", "", 2240u},
                                                  std::tuple{"int6/int4", "", 5312u},
                                                  std::tuple{"int8", "per_group:32", 8704u},
                                                  std::tuple{"int8", "per_head", 8256u},
                                                  std::tuple{"int8", "per_head:fixed", 8192u},
                                                  std::tuple{"fp8_e4m3", "", 8192u},
                                                  std::tuple{"int8/int4", "", 6400u},
                                                  std::tuple{"int4_asym", "", 4608u},
                                                  std::tuple{"int4_sym", "", 4352u},
                                                  std::tuple{"int4_sym", "per_group:32", 4608u},
                                                  std::tuple{"int4_asym", "per_group:32", 5120u},
                                                  std::tuple{"int4_sym", "per_channel", 4160u}}) {
    const auto pair = ParseKvFormat(dtype, granularity, "", nullptr);
    ASSERT_TRUE(pair);
    const KvCacheSpec spec{
        .k = pair->k, .v = pair->v, .num_kv_heads = 1, .head_dim = 64, .block_size = 64};
    EXPECT_EQ(spec.BytesPerBlock(), bytes) << dtype << " " << granularity;
  }
}

TEST(FormatPages, Int8) {
  std::vector<int8_t> codes(4);
  std::vector<float> decoded(4);
  const uint16_t scale = QuantizeInt8Row(kRow, codes);
  EXPECT_EQ(scale, 0x260C);
  EXPECT_EQ(HalfToFloat(scale), 0.02362060546875f);
  EXPECT_EQ(codes, (std::vector<int8_t>{21, -53, 127, 0}));
  DequantizeInt8Row(codes, scale, decoded);
  ExpectNear(decoded, {0.49603, -1.25189, 2.99982, 0});
}

TEST(FormatPages, Int4) {
  std::vector<int8_t> codes(4);
  std::vector<float> decoded(4);
  const uint16_t scale = QuantizeInt4Row(kRow, codes);
  EXPECT_EQ(scale, 0x36DB);
  EXPECT_EQ(HalfToFloat(scale), 0.428466796875f);
  EXPECT_EQ(codes, (std::vector<int8_t>{1, -3, 7, 0}));
  DequantizeInt4Row(codes, scale, decoded);
  ExpectNear(decoded, {0.42847, -1.28540, 2.99927, 0});

  std::vector<uint8_t> asym_codes(4);
  const AsymScale asym = QuantizeInt4AsymRow(kRow, asym_codes);
  EXPECT_EQ(asym.scale, 0x3489);
  EXPECT_EQ(HalfToFloat(asym.scale), 0.283447265625f);
  EXPECT_EQ(asym.zero_point, 0x4469);
  EXPECT_EQ(HalfToFloat(asym.zero_point), 4.41015625f);
  EXPECT_EQ(asym_codes, (std::vector<uint8_t>{6, 0, 15, 4}));
  DequantizeInt4AsymRow(asym_codes, asym, decoded);
  ExpectNear(decoded, {0.45064, -1.25005, 3.00166, -0.11626});
}

TEST(FormatPages, Fp8) {
  std::vector<uint8_t> e4m3, e5m2;
  for (float x : kRow) {
    e4m3.push_back(FloatToFp8E4m3(x));
    e5m2.push_back(FloatToFp8E5m2(x));
  }
  EXPECT_EQ(e4m3, (std::vector<uint8_t>{0x30, 0xBA, 0x44, 0x05}));
  EXPECT_EQ(e5m2, (std::vector<uint8_t>{0x38, 0xBD, 0x42, 0x21}));
  EXPECT_EQ(Fp8E4m3ToFloat(0x05), 0.009765625f);
  EXPECT_EQ(Fp8E5m2ToFloat(0x21), 0.009765625f);
  std::vector<uint8_t> codes(4);
  std::vector<float> decoded(4);
  const uint16_t scale = QuantizeFp8Row(KvCacheDtype::kFp8E4m3, kRow, codes);
  EXPECT_EQ(scale, 0x1EDB);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0x69, 0xF4, 0x7E, 0x3C}));
  DequantizeFp8Row(KvCacheDtype::kFp8E4m3, codes, scale, decoded);
  ExpectNear(decoded, {0.48203, -1.28540, 2.99927, 0.01004});
  // The scale of a row of amax 0.01 in E5M2: three steps of 2^-24.
  const std::vector<float> small(4, 0.01f);
  EXPECT_EQ(QuantizeFp8Row(KvCacheDtype::kFp8E5m2, small, codes), 3);
}

}  // namespace
}  // namespace turboquant
