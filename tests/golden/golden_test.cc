// The codec against files that numpy and ml_dtypes made (make_golden.py): rounding of all 65,536
// half values, and whole encoded blocks, byte for byte.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/file.h"
#include "base/half.h"
#include "codec/block_mean.h"
#include "codec/block_scale.h"
#include "codec/fp8.h"
#include "codec/int4.h"
#include "codec/int8.h"
#include "codec/kv_cache_spec.h"
#include "codec/scale_fit.h"
#include "codec/tile.h"

namespace turboquant {
namespace {

std::string ReadGolden(const std::string& name) {
  const auto content = ReadFile(std::string(TURBOQUANT_SOURCE_DIR) + "/tests/golden/data/" + name);
  EXPECT_TRUE(content) << content.error().message;
  return content.value_or("");
}

template <typename T>
std::vector<T> ReadGoldenArray(const std::string& name, size_t size) {
  const std::string content = ReadGolden(name);
  EXPECT_EQ(content.size(), size * sizeof(T)) << name;
  std::vector<T> values(size);
  if (content.size() == size * sizeof(T)) {
    std::memcpy(values.data(), content.data(), content.size());
  }
  return values;
}

// The RULER of make_golden.py.
const float kInt8Ruler = HalfToFloat(FloatToHalf(0.0292f));
const float kInt4Ruler = HalfToFloat(FloatToHalf(0.61f));
const float kInt4AsymRuler = HalfToFloat(FloatToHalf(0.37f));
const float kInt4AsymZeroPoint = HalfToFloat(FloatToHalf(6.7f));

template <typename Quantize>
void ExpectTable(const std::string& format, Quantize quantize) {
  const auto golden = ReadGoldenArray<uint8_t>("half_to_" + format + ".bin", 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const float x = HalfToFloat(static_cast<uint16_t>(i));
    ASSERT_EQ(static_cast<int>(quantize(x)), static_cast<int>(golden[i]))
        << format << " of half " << i << " = " << x;
  }
}

TEST(GoldenRoundingTest, Int8) {
  ExpectTable("int8", [](float x) {
    return StoredInt8(KvSide::kValue, QuantizeInt8(x, 1.0f / kInt8Ruler));
  });
}

TEST(GoldenRoundingTest, Int4) {
  ExpectTable("int4_sym", [](float x) { return NibbleOfInt4(QuantizeInt4(x, 1.0f / kInt4Ruler)); });
  ExpectTable("int4_asym", [](float x) {
    return QuantizeInt4Asym(x, 1.0f / kInt4AsymRuler, kInt4AsymZeroPoint);
  });
}

TEST(GoldenRoundingTest, Fp8) {
  ExpectTable("fp8_e4m3", FloatToFp8E4m3);
  ExpectTable("fp8_e5m2", FloatToFp8E5m2);
}

TEST(GoldenRoundingTest, Fp8Values) {
  const auto e4m3 = ReadGoldenArray<float>("fp8_e4m3_to_f32.bin", 256);
  const auto e5m2 = ReadGoldenArray<float>("fp8_e5m2_to_f32.bin", 256);
  for (int i = 0; i < 256; ++i) {
    for (const auto& [got, golden] :
         {std::pair{Fp8E4m3ToFloat(static_cast<uint8_t>(i)), e4m3[static_cast<size_t>(i)]},
          std::pair{Fp8E5m2ToFloat(static_cast<uint8_t>(i)), e5m2[static_cast<size_t>(i)]}}) {
      ASSERT_EQ(std::isnan(got), std::isnan(golden)) << i;
      if (std::isnan(got)) continue;
      ASSERT_EQ(got, golden) << i;
      ASSERT_EQ(std::signbit(got), std::signbit(golden)) << i;
    }
  }
}

TEST(GoldenRoundingTest, Bf16) {
  const auto golden = ReadGoldenArray<uint16_t>("half_to_bf16.bin", 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const float x = HalfToFloat(static_cast<uint16_t>(i));
    if (std::isnan(x)) {  // any NaN is right
      ASSERT_TRUE(std::isnan(Bf16ToFloat(golden[i])) && std::isnan(Bf16ToFloat(FloatToBf16(x))))
          << i;
    } else {
      ASSERT_EQ(FloatToBf16(x), golden[i]) << i;
    }
  }
}

struct GoldenBlock {
  KvCacheSpec spec;
  size_t offset, bytes;
  int64_t end_codes_k, end_codes_v, decoded_offset;
};

std::vector<GoldenBlock> ReadBlocks() {
  std::vector<GoldenBlock> blocks;
  std::istringstream text(ReadGolden("blocks.txt"));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string k, v, k_granularity, v_granularity;
    GoldenBlock block;
    fields >> k >> v >> k_granularity >> v_granularity >> block.spec.num_kv_heads >>
        block.spec.head_dim >> block.spec.block_size >> block.offset >> block.bytes >>
        block.end_codes_k >> block.end_codes_v >> block.decoded_offset;
    EXPECT_TRUE(fields) << line;
    const auto pair = ParseKvFormat(k + "/" + v, k_granularity + "/" + v_granularity, "", nullptr);
    EXPECT_TRUE(pair) << pair.error().message;
    if (!pair) continue;
    block.spec.k = pair->k;
    block.spec.v = pair->v;
    blocks.push_back(block);
  }
  return blocks;
}

class GoldenBlockTest : public ::testing::Test {
 protected:
  static constexpr size_t kTokens = 32;

  // [tokens][head_dim] of one side and head; two heads of 64 side by side make the head of 128.
  std::vector<float> Values(const KvCacheSpec& spec, int side, int head) const {
    const size_t dim = static_cast<size_t>(spec.head_dim);
    std::vector<float> values(kTokens * dim);
    for (size_t token = 0; token < kTokens; ++token) {
      for (size_t channel = 0; channel < dim; ++channel) {
        const size_t head_of_input = static_cast<size_t>(head) + channel / 64;
        const size_t index =
            ((static_cast<size_t>(side) * 2 + head_of_input) * kTokens + token) * 64 + channel % 64;
        float& value = values[token * dim + channel];
        value = HalfToFloat(input_[index]);
        if (spec.k.HasByteScales() && !std::isfinite(value)) value = 0;
      }
    }
    return values;
  }

  std::vector<float> StaticScales(const KvSideSpec& side, int index) const {
    const auto begin = static_.begin() + index * kStaticPerSide;
    switch (side.granularity) {
      case ScaleGranularity::kPerTensor:
        return {begin, begin + 1};
      case ScaleGranularity::kPerHead:
        return {begin + 1, begin + 3};
      case ScaleGranularity::kPerChannel:
        return {begin + 3, begin + 3 + 128};
      case ScaleGranularity::kNone:
      case ScaleGranularity::kPerBlock:
      case ScaleGranularity::kPerTokenHead:
      case ScaleGranularity::kPerTokenHeadU8:
      case ScaleGranularity::kPerGroup:
        return {};
    }
    return {};
  }

  // Encodes the input as a block of `spec`; adds up end codes per side.
  AlignedBuffer<uint8_t> Encode(const KvCacheSpec& spec, int64_t end_codes[2]) const {
    AlignedBuffer<uint8_t> block(spec.BytesPerBlock());
    const KvBlockLayout layout(spec);
    for (int head = 0; head < spec.num_kv_heads; ++head) {
      uint8_t* const run = block.data() + static_cast<size_t>(head) * layout.bytes_per_head;
      for (int side = 0; side < 2; ++side) {
        const KvSideSpec& side_spec = side == 0 ? spec.k : spec.v;
        std::vector<float> x = Values(spec, side, head);
        const std::vector<float> scales = StaticScales(side_spec, side);
        if (side == 0 && spec.k.HasMean()) {
          CenterKeys({x.data(), spec.block_size, spec.head_dim, MeanBits(spec.k.dtype),
                      run + layout.k_mean, reinterpret_cast<uint16_t*>(run + layout.k_mean_scale)});
        }
        auto* stored_scales =
            reinterpret_cast<uint16_t*>(run + (side == 0 ? layout.k_scales : layout.v_scales));
        std::array<uint16_t, kTokens> fitted;
        if (side_spec.HasByteScales()) {
          const size_t bias = side == 0 ? layout.k_scale_bias : layout.v_scale_bias;
          FitScales({side_spec.dtype, x.data(), spec.block_size, spec.head_dim,
                     reinterpret_cast<uint8_t*>(stored_scales),
                     reinterpret_cast<int16_t*>(run + bias), fitted.data()});
          stored_scales = fitted.data();
        }
        HeadScales given = ScalesOfHead(side_spec, scales, head, spec.head_dim);
        std::array<float, kMaxHeadDimOfSpec> channels;
        if (side_spec.HasBlockScale()) {
          const uint16_t factor =
              FitBlockScale({x.data(), spec.block_size, spec.head_dim, side_spec, given}).factor;
          *reinterpret_cast<uint16_t*>(
              run + (side == 0 ? layout.k_block_scale : layout.v_block_scale)) = factor;
          given = ScaledBy(given, factor, spec.head_dim, &channels);
        }
        EncodeTile(
            {.shape = {side == 0 ? KvSide::kKey : KvSide::kValue, spec.block_size, spec.head_dim},
             .spec = side_spec,
             .x = x.data(),
             .static_scales = given,
             .lines = run + (side == 0 ? layout.k_lines : layout.v_lines),
             .scales = stored_scales,
             .zero_points = reinterpret_cast<uint16_t*>(
                 run + (side == 0 ? layout.k_zero_points : layout.v_zero_points)),
             .end_codes = &end_codes[side]});
      }
    }
    return block;
  }

  std::vector<float> Decode(const KvCacheSpec& spec, const uint8_t* block) const {
    const KvBlockLayout layout(spec);
    const size_t values_per_tile = kTokens * static_cast<size_t>(spec.head_dim);
    std::vector<float> x(2 * static_cast<size_t>(spec.num_kv_heads) * values_per_tile);
    float* out = x.data();
    for (int side = 0; side < 2; ++side) {
      for (int head = 0; head < spec.num_kv_heads; ++head, out += values_per_tile) {
        const uint8_t* const run = block + static_cast<size_t>(head) * layout.bytes_per_head;
        const KvSideSpec& side_spec = side == 0 ? spec.k : spec.v;
        const std::vector<float> scales = StaticScales(side_spec, side);
        const uint8_t* const byte_scales = run + (side == 0 ? layout.k_scales : layout.v_scales);
        const auto* stored_scales = reinterpret_cast<const uint16_t*>(byte_scales);
        std::array<uint16_t, kTokens> expanded;
        if (side_spec.HasByteScales()) {
          const size_t bias = side == 0 ? layout.k_scale_bias : layout.v_scale_bias;
          ExpandScales({byte_scales, *reinterpret_cast<const int16_t*>(run + bias), spec.block_size,
                        expanded.data()});
          stored_scales = expanded.data();
        }
        HeadScales given = ScalesOfHead(side_spec, scales, head, spec.head_dim);
        std::array<float, kMaxHeadDimOfSpec> channels;
        if (side_spec.HasBlockScale()) {
          const auto* factor = reinterpret_cast<const uint16_t*>(
              run + (side == 0 ? layout.k_block_scale : layout.v_block_scale));
          given = ScaledBy(given, *factor, spec.head_dim, &channels);
        }
        DecodeTile(
            {.shape = {side == 0 ? KvSide::kKey : KvSide::kValue, spec.block_size, spec.head_dim},
             .spec = side_spec,
             .lines = run + (side == 0 ? layout.k_lines : layout.v_lines),
             .scales = stored_scales,
             .zero_points = reinterpret_cast<const uint16_t*>(
                 run + (side == 0 ? layout.k_zero_points : layout.v_zero_points)),
             .static_scales = given,
             .x = out});
        if (side == 0 && spec.k.HasMean()) AddMean(spec, run, out);
      }
    }
    return x;
  }

  static void AddMean(const KvCacheSpec& spec, const uint8_t* run, float* x) {
    const KvBlockLayout layout(spec);
    const float scale = HalfToFloat(*reinterpret_cast<const uint16_t*>(run + layout.k_mean_scale));
    for (size_t i = 0; i < kTokens * static_cast<size_t>(spec.head_dim); ++i) {
      const int channel = static_cast<int>(i) % spec.head_dim;
      x[i] += scale *
              static_cast<float>(MeanCode(run + layout.k_mean, MeanBits(spec.k.dtype), channel));
    }
  }

  static constexpr int kStaticPerSide = 1 + 2 + 128;
  const std::vector<uint16_t> input_ = ReadGoldenArray<uint16_t>("input.bin", 2 * 2 * kTokens * 64);
  const std::vector<float> static_ = ReadGoldenArray<float>("static.bin", 2 * kStaticPerSide);
};

TEST_F(GoldenBlockTest, EncodedBlocksEqualByteForByte) {
  const std::string golden = ReadGolden("blocks.bin");
  const std::vector<GoldenBlock> blocks = ReadBlocks();
  ASSERT_EQ(blocks.size(), 66u);
  size_t end = 0;
  for (const GoldenBlock& expected : blocks) {
    SCOPED_TRACE(expected.spec.ToString());
    ASSERT_TRUE(expected.spec.Validate());
    ASSERT_EQ(expected.spec.BytesPerBlock(), expected.bytes);
    ASSERT_LE(expected.offset + expected.bytes, golden.size());
    int64_t end_codes[2] = {0, 0};
    const AlignedBuffer<uint8_t> block = Encode(expected.spec, end_codes);
    for (size_t i = 0; i < expected.bytes; ++i) {
      ASSERT_EQ(static_cast<int>(block[i]),
                static_cast<int>(static_cast<uint8_t>(golden[expected.offset + i])))
          << "byte " << i << " of " << expected.bytes;
    }
    EXPECT_EQ(end_codes[0], expected.end_codes_k);
    EXPECT_EQ(end_codes[1], expected.end_codes_v);
    end = expected.offset + expected.bytes;
  }
  EXPECT_EQ(end, golden.size());
}

TEST_F(GoldenBlockTest, DecodedValuesEqualBitForBit) {
  const std::string blocks = ReadGolden("blocks.bin");
  const std::string decoded = ReadGolden("decoded.bin");
  int num_compared = 0;
  for (const GoldenBlock& expected : ReadBlocks()) {
    if (expected.decoded_offset < 0) continue;
    SCOPED_TRACE(expected.spec.ToString());
    const std::vector<float> x =
        Decode(expected.spec, reinterpret_cast<const uint8_t*>(blocks.data()) + expected.offset);
    ASSERT_LE(static_cast<size_t>(expected.decoded_offset) + x.size() * sizeof(float),
              decoded.size());
    for (size_t i = 0; i < x.size(); ++i) {
      float golden;
      std::memcpy(
          &golden,
          decoded.data() + expected.decoded_offset + static_cast<ptrdiff_t>(i * sizeof(float)),
          sizeof(float));
      ASSERT_EQ(x[i], golden) << "value " << i;
    }
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 11);
}

}  // namespace
}  // namespace turboquant
