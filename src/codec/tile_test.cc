#include "codec/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "codec/fp8.h"
#include "codec/narrow.h"
#include "codec/scale.h"
#include "codec/scale_fit.h"

namespace turboquant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");
constexpr int kHeadDims[] = {64, 80, 96, 112, 128, 192, 256};
constexpr int kBlockSizes[] = {16, 32, 64, 128, 256};
constexpr KvSide kSides[] = {KvSide::kKey, KvSide::kValue};

// An encoded tile and what it was made from.
struct Tile {
  TileShape shape;
  KvSideSpec spec;
  std::vector<float> x;
  std::vector<float> static_scales;  // per channel, per head [1], or empty
  AlignedBuffer<uint8_t> lines;
  std::vector<uint16_t> scales, zero_points;
  int64_t end_codes = 0;

  Tile(const TileShape& tile_shape, const KvSideSpec& side_spec, std::vector<float> values,
       std::vector<float> statics = {}, uint8_t fill = 0)
      : shape(tile_shape),
        spec(side_spec),
        x(std::move(values)),
        static_scales(std::move(statics)),
        lines(LineBytes(side_spec.dtype, tile_shape)),
        scales(static_cast<size_t>(side_spec.ScalesPerToken(tile_shape.head_dim) *
                                   tile_shape.num_tokens),
               fill),
        zero_points(side_spec.HasZeroPoint() ? scales.size() : 0, fill) {
    std::ranges::fill(lines.span(), fill);
    if (spec.HasByteScales()) {
      std::vector<uint8_t> codes(scales.size());
      int16_t bias;
      FitScales({spec.dtype, x.data(), shape.num_tokens, shape.head_dim, codes.data(), &bias,
                 scales.data()});
    }
    EncodeTile({.shape = shape,
                .spec = spec,
                .x = x.data(),
                .static_scales = Static(),
                .lines = lines.data(),
                .scales = scales.data(),
                .zero_points = zero_points.data(),
                .end_codes = &end_codes});
  }

  HeadScales Static() const { return ScalesOfHead(spec, static_scales, 0, shape.head_dim); }

  std::vector<float> Decode() const {
    std::vector<float> out(x.size(), kNan);
    DecodeTile({.shape = shape,
                .spec = spec,
                .lines = lines.data(),
                .scales = scales.data(),
                .zero_points = zero_points.data(),
                .static_scales = Static(),
                .x = out.data()});
    return out;
  }
  // Index into scales of token and channel.
  size_t ScaleIndex(int token, int channel) const {
    return static_cast<size_t>(channel / spec.ChannelsPerScale(shape.head_dim) * shape.num_tokens +
                               token);
  }
};

std::vector<KvSideSpec> AllSideSpecs() {
  std::vector<KvSideSpec> specs;
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    for (const char* text :
         {"none", "per_tensor", "per_head", "per_channel", "per_block", "per_token_head",
          "per_token_head_u8", "per_group:32", "per_group:64"}) {
      const auto pair = ParseKvFormat(Name(dtype), text, "none", nullptr);
      if (pair) specs.push_back(pair->k);
    }
  }
  return specs;
}

std::vector<float> StaticFor(const KvSideSpec& spec, int head_dim, float scale) {
  if (!IsStatic(spec.granularity) && spec.granularity != ScaleGranularity::kPerBlock) return {};
  std::vector<float> scales(
      spec.granularity == ScaleGranularity::kPerChannel ? static_cast<size_t>(head_dim) : 1);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = scale * (1.0f + 0.01f * static_cast<float>(i % 7));
  }
  return scales;
}

// f16 values with a spread of magnitudes.
std::vector<float> RandomValues(const TileShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.head_dim));
  for (size_t i = 0; i < x.size(); ++i) {
    const float spread =
        std::exp2(static_cast<float>(i / static_cast<size_t>(shape.head_dim) % 13) - 6.0f);
    x[i] = HalfToFloat(FloatToHalf(normal(random) * spread));
  }
  return x;
}

bool HasWholeUnits(KvCacheDtype dtype, const TileShape& shape) {
  return HasWholeUnits(dtype, shape.side == KvSide::kKey ? shape.head_dim : shape.num_tokens);
}

// Every code has its own bits and together they fill the lines: the layout is a bijection.
TEST(AddressTest, Bijection) {
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    for (KvSide side : kSides) {
      for (int head_dim : kHeadDims) {
        for (int num_tokens : kBlockSizes) {
          const TileShape shape{side, num_tokens, head_dim};
          if (!HasWholeUnits(dtype, shape)) continue;
          const auto code_bits = static_cast<size_t>(CodeBits(dtype));
          std::vector<bool> used(LineBytes(dtype, shape) * 8);
          ASSERT_EQ(used.size(),
                    static_cast<size_t>(num_tokens) * static_cast<size_t>(head_dim) * code_bits);
          for (int token = 0; token < num_tokens; ++token) {
            for (int channel = 0; channel < head_dim; ++channel) {
              const CodeAddress address = AddressOf(dtype, shape, token, channel);
              const auto take = [&](size_t bit, size_t num_bits) {
                for (size_t i = bit; i < bit + num_bits; ++i) {
                  ASSERT_LT(i, used.size());
                  ASSERT_FALSE(used[i])
                      << Name(dtype) << " token " << token << " channel " << channel;
                  used[i] = true;
                }
              };
              const auto high_bits = static_cast<size_t>(address.high_bits);
              take(address.byte * 8 + static_cast<size_t>(address.shift), code_bits - high_bits);
              take(address.high_byte * 8 + static_cast<size_t>(address.high_shift), high_bits);
            }
          }
        }
      }
    }
  }
}

// The places that docs/formats/block.md works out.
TEST(AddressTest, ByHand) {
  const TileShape k{KvSide::kKey, 64, 64}, v{KvSide::kValue, 64, 64};
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt8, k, 17, 9), (CodeAddress{(16 + 2) * 64 + 1 * 4 + 1, 0}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt8, v, 17, 9),
            (CodeAddress{(4 * 4 + 0) * 64 + 9 * 4 + 1, 0}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt4Sym, k, 17, 13),
            (CodeAddress{(8 + 1) * 64 + 1 * 4 + 1, 4}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt4Sym, v, 17, 9),
            (CodeAddress{(2 * 4 + 0) * 64 + 9 * 4 + 1, 0}));
  // int6: units of 3 lines with 16 codes; token 17 of K, channel 57: unit 3 of 4, plane 2 of 4.
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt6, k, 17, 57),
            (CodeAddress{((4 + 3) * 3 + 1) * 64 + 1 * 4 + 1, 0, ((4 + 3) * 3 + 2) * 64 + 1 * 4 + 1,
                         4, 2}));
  // int3: units of 3 lines with 32 codes; token 61 of V is code 29 of unit 1, channel 9 of column
  // 0: plane 7, the last of the second line.
  EXPECT_EQ(AddressOf(KvCacheDtype::kInt3, v, 61, 9),
            (CodeAddress{(4 * 3 + 1) * 64 + 9 * 4 + 1, 6, (4 * 3 + 2) * 64 + 9 * 4 + 1, 7, 1}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kF16, k, 17, 9), (CodeAddress{(32 + 4) * 64 + 1 * 4 + 2, 0}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kF16, v, 17, 9),
            (CodeAddress{(8 * 4 + 0) * 64 + 9 * 4 + 2, 0}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kF32, k, 17, 9), (CodeAddress{(64 + 9) * 64 + 1 * 4, 0}));
  EXPECT_EQ(AddressOf(KvCacheDtype::kF32, v, 17, 9), (CodeAddress{(17 * 4 + 0) * 64 + 9 * 4, 0}));
}

// What is stored does not depend on what was in memory before: every byte that BitsPerValue counts,
// padding apart, is written, and the padding is what the layout says.
TEST(TileTest, EveryByteIsWritten) {
  for (const KvSideSpec& spec : AllSideSpecs()) {
    for (KvSide side : kSides) {
      const TileShape shape{side, 32, 64};
      const std::vector<float> x = RandomValues(shape, 1);
      const Tile a(shape, spec, x, StaticFor(spec, 64, 0.1f), 0x00);
      const Tile b(shape, spec, x, StaticFor(spec, 64, 0.1f), 0xFF);
      ASSERT_TRUE(std::ranges::equal(a.lines.span(), b.lines.span())) << Name(spec.dtype);
      ASSERT_EQ(a.scales, b.scales);
      ASSERT_EQ(a.zero_points, b.zero_points);
      const KvCacheSpec block{
          .k = spec, .v = spec, .num_kv_heads = 1, .head_dim = 64, .block_size = 32};
      const KvBlockLayout layout(block);
      const size_t header = spec.HasByteScales()
                                ? 2 * a.scales.size() + 6
                                : 2 * (2 * a.scales.size() + 2 * a.zero_points.size()) +
                                      (spec.HasBlockScale() ? 4 : 0);
      EXPECT_EQ(layout.k_lines, (header + 63) / 64 * 64);
      EXPECT_EQ(block.BytesPerBlock(), layout.k_lines + 2 * a.lines.size());
      EXPECT_DOUBLE_EQ(block.BitsPerValue() * 2 * 32 * 64,
                       8.0 * static_cast<double>(block.BytesPerBlock()));
    }
  }
}

// Bound on |x - decoded| of one value, u = 2^-24 the unit roundoff of f32:
//   int8, int4:  rint moves p by 1/2 at most, p itself is off by 2u|p|. A scale rounded down to f16
//   (by 2^-11 of it, if it
//                is a normal f16, else by 2^-25) lets p exceed the largest code by that share, and
//                the clamp takes it away.
//   int4_asym:   the same; p + zero_point adds one rounding, and a rounded zero point moves the
//   ends by 2^-11 |zero_point|. fp8:         half a step: 2^-4 or 2^-3 of the value, or half the
//   subnormal step; the same for the clamp. static:      as above where x lies in the range; else
//   the clamp takes |x| - max_code * scale.
// The product of the decoder adds 2u of the value.
float ErrorBound(const Tile& tile, int token, int channel) {
  const KvSideSpec& spec = tile.spec;
  const HeadScales statics = tile.Static();
  const size_t index = tile.ScaleIndex(token, channel);
  const bool dynamic = IsPerToken(spec.granularity);
  const float scale =
      dynamic ? HalfToFloat(tile.scales[index])
              : (statics.channels != nullptr ? statics.channels[channel] : statics.head);
  const float x = tile.x[static_cast<size_t>(token) * static_cast<size_t>(tile.shape.head_dim) +
                         static_cast<size_t>(channel)];
  const float magnitude = std::fabs(x);
  const float float_error = 0x1p-21f * (magnitude + 16 * scale);
  const auto clamp_loss = [&](float max_code) {
    return dynamic ? (0x1p-10f * scale + 0x1p-25f) * max_code
                   : std::max(0.0f, magnitude - max_code * scale);
  };
  switch (spec.dtype) {
    case KvCacheDtype::kF32:
      return 0.0f;
    case KvCacheDtype::kF16:
      return 0.0f;  // the input is f16 already
    case KvCacheDtype::kBf16:
      return 0x1p-8f * magnitude;  // normal in bf16: its range is that of f32
    case KvCacheDtype::kInt8:
      return 0.5f * scale + clamp_loss(127) + float_error;
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2: {  // half the widest gap, and what lies beyond the last level
      const NarrowFormat format = NarrowFormatOf(spec.dtype);
      const auto last = static_cast<size_t>(format.half) - 1;
      float gap = static_cast<float>(2 * format.magnitudes[0]);
      for (size_t i = 0; i < last; ++i) {
        gap = std::max(gap, static_cast<float>(format.magnitudes[i + 1] - format.magnitudes[i]));
      }
      const float beyond = magnitude - static_cast<float>(format.magnitudes[last]) * scale;
      return std::max(0.5f * gap * scale, beyond) + float_error;
    }
    case KvCacheDtype::kInt4Sym:
      return 0.5f * scale + clamp_loss(7) + float_error;
    case KvCacheDtype::kInt4Asym: {
      const float zero_point = std::fabs(HalfToFloat(tile.zero_points[index]));
      return scale * (0.5f + 0x1p-10f * 15 + 0x1p-11f * zero_point) + float_error +
             0x1p-22f * zero_point * scale;
    }
    case KvCacheDtype::kFp8E4m3:
      return std::max(0x1p-4f * magnitude, 0x1p-10f * scale) + clamp_loss(448) + float_error;
    case KvCacheDtype::kFp8E5m2:
      return std::max(0x1p-3f * magnitude, 0x1p-17f * scale) + clamp_loss(57344) + float_error;
  }
  return 0.0f;
}

TEST(TileTest, RoundTripWithinTheDerivedBound) {
  uint32_t seed = 100;
  for (const KvSideSpec& spec : AllSideSpecs()) {
    for (KvSide side : kSides) {
      for (int head_dim : kHeadDims) {
        if (head_dim % spec.ChannelsPerScale(head_dim) != 0) continue;
        const TileShape shape{side, 32, head_dim};
        if (!HasWholeUnits(spec.dtype, shape)) continue;
        const Tile tile(shape, spec, RandomValues(shape, ++seed), StaticFor(spec, head_dim, 0.05f));
        const std::vector<float> decoded = tile.Decode();
        for (int token = 0; token < shape.num_tokens; ++token) {
          for (int channel = 0; channel < head_dim; ++channel) {
            const size_t i = static_cast<size_t>(token * head_dim + channel);
            ASSERT_LE(std::fabs(decoded[i] - tile.x[i]), ErrorBound(tile, token, channel))
                << Name(spec.dtype) << " " << Name(spec.granularity) << " x " << tile.x[i]
                << " decoded " << decoded[i];
          }
        }
      }
    }
  }
}

// Encoding what was decoded gives the same codes: the formats are stable under a second pass with
// the same scales.
TEST(TileTest, StaticFormatsAreIdempotent) {
  for (const KvSideSpec& spec : AllSideSpecs()) {
    if (IsPerToken(spec.granularity)) continue;
    const TileShape shape{KvSide::kKey, 16, 64};
    const Tile first(shape, spec, RandomValues(shape, 7), StaticFor(spec, 64, 0.05f));
    const Tile second(shape, spec, first.Decode(), first.static_scales);
    EXPECT_TRUE(std::ranges::equal(first.lines.span(), second.lines.span())) << Name(spec.dtype);
  }
}

// One token of the values given, the rest zero; decoded values of that token.
std::vector<float> RoundTripToken(const KvSideSpec& spec, const std::vector<float>& values) {
  const TileShape shape{KvSide::kValue, 16, 64};
  std::vector<float> x(16 * 64, 0.0f);
  std::ranges::copy(values, x.begin() + 5 * 64);
  const Tile tile(shape, spec, x, StaticFor(spec, 64, 1.0f));
  const std::vector<float> decoded = tile.Decode();
  return {decoded.begin() + 5 * 64, decoded.begin() + 6 * 64};
}

// Of the symmetric formats.
float MaxCode(KvCacheDtype dtype) {
  return dtype == KvCacheDtype::kInt8      ? 127.0f
         : dtype == KvCacheDtype::kInt4Sym ? 7.0f
         : dtype == KvCacheDtype::kFp8E4m3 ? kMaxFp8E4m3
                                           : kMaxFp8E5m2;
}

TEST(TileTest, NanIsZeroAndInfinitySaturates) {
  for (const KvSideSpec& spec : AllSideSpecs()) {
    if (spec.HasByteScales()) continue;  // scale_fit_test.cc
    SCOPED_TRACE(std::string(Name(spec.dtype)) + " " + std::string(Name(spec.granularity)));
    std::vector<float> values(64, -1.0f);
    values[1] = 1.5f;
    values[2] = kNan;
    values[3] = kInf;
    values[4] = -kInf;
    const std::vector<float> decoded = RoundTripToken(spec, values);
    if (CodeBits(spec.dtype) >= 16) {  // exact formats pass everything through
      EXPECT_TRUE(std::isnan(decoded[2]));
      EXPECT_EQ(decoded[3], kInf);
      EXPECT_EQ(decoded[4], -kInf);
      continue;
    }
    if (spec.dtype == KvCacheDtype::kInt4Asym) {
      EXPECT_LE(std::fabs(decoded[2]), 2.5f / 15 / 2 * 1.01f);
      EXPECT_NEAR(decoded[3], 1.5f, 0.01f);
      EXPECT_NEAR(decoded[4], -1.0f, 0.01f);
      continue;
    }
    EXPECT_EQ(decoded[2], 0.0f);
    // The ends: the largest finite value where scales are dynamic, else the largest code times the
    // scale.
    const float max_code = MaxCode(spec.dtype);
    const float scale = spec.granularity == ScaleGranularity::kPerChannel ? 1.03f : 1.0f;
    const float end = IsPerToken(spec.granularity) ? 1.5f : max_code * scale;
    EXPECT_NEAR(decoded[3], end, end * 0.001f);
    EXPECT_NEAR(decoded[4], -end, end * 0.02f);
  }
}

TEST(TileTest, DegenerateRows) {
  for (const KvSideSpec& spec : AllSideSpecs()) {
    if (!IsPerToken(spec.granularity) || spec.HasByteScales()) continue;
    SCOPED_TRACE(std::string(Name(spec.dtype)) + " " + std::string(Name(spec.granularity)));
    // Zeros; nothing finite; infinity among zeros; values below every scale: all stored as zeros.
    std::vector<float> infinity_among_zeros(64, 0.0f);
    infinity_among_zeros[9] = kInf;
    for (const auto& values : {std::vector<float>(64, 0.0f), std::vector<float>(64, kNan),
                               std::vector<float>(64, kInf), infinity_among_zeros}) {
      for (float value : RoundTripToken(spec, values)) ASSERT_EQ(value, 0.0f);
    }
    // The ends of f16 and a constant come back within the rounding of the scale, relative or half a
    // subnormal step.
    const float max_code = spec.dtype == KvCacheDtype::kInt4Asym ? 1.0f : MaxCode(spec.dtype);
    for (float constant : {65504.0f, -65504.0f, 3.0f, -0.5f}) {
      for (float value : RoundTripToken(spec, std::vector<float>(64, constant))) {
        ASSERT_NEAR(value, constant, std::fabs(constant) * 0x1p-10f + 0x1p-25f * max_code);
      }
    }
  }
}

// A scale that is a subnormal f16 is coarse: what exceeds max_code * scale is cut, nothing worse
// happens.
TEST(TileTest, TinyValues) {
  const KvSideSpec int8{};
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i + 1) * 3.0f * 0x1p-24f;
  }
  const std::vector<float> decoded = RoundTripToken(int8, values);
  const float scale = HalfToFloat(FloatToHalf(values[63] / 127.0f));
  EXPECT_EQ(scale, 0x1p-23f);  // 1.51 * 2^-24 rounds to 2 * 2^-24
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::fabs(decoded[i] - values[i]), 0.5f * scale) << i;
  }
  const std::vector<float> tinier(64, 0x1p-24f);  // scale rounds to 0
  for (float value : RoundTripToken(int8, tinier)) ASSERT_EQ(value, 0.0f);
}

TEST(TileTest, EndCodesAreCounted) {
  const TileShape shape{KvSide::kKey, 16, 64};
  std::vector<float> x(16 * 64, 0.25f);
  x[3] = 4.0f;  // beyond every range of scale 0.03
  x[70] = -4.0f;
  x[130] = 3.75f;
  for (KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kInt4Sym}) {
    const KvSideSpec spec{.dtype = dtype, .granularity = ScaleGranularity::kPerHead};
    const float scale = dtype == KvCacheDtype::kInt8 ? 0.03f : 0.5f;
    EXPECT_EQ(Tile(shape, spec, x, {scale}).end_codes, dtype == KvCacheDtype::kInt8 ? 2 : 3);
  }
  const KvSideSpec fp8{.dtype = KvCacheDtype::kFp8E4m3,
                       .granularity = ScaleGranularity::kPerTensor};
  EXPECT_EQ(Tile(shape, fp8, x, {4.0f / 500}).end_codes, 3);  // 3.75 * 125 = 468.75 saturates too
  const KvSideSpec dynamic{};
  // One per token where all values are alike, except the three tokens with an outlier: one code
  // each there.
  EXPECT_EQ(Tile(shape, dynamic, x).end_codes, 13 * 64 + 3);
  EXPECT_EQ(Tile(shape, {.dtype = KvCacheDtype::kF16, .granularity = ScaleGranularity::kNone}, x)
                .end_codes,
            0);
}

TEST(ScaleTest, Rules) {
  const std::vector<float> x = {1.0f, -3.0f, kNan, kInf, -kInf};
  EXPECT_EQ(FiniteAmax(x), 3.0f);
  EXPECT_EQ(FiniteAmax(std::vector<float>{kNan, kInf}), 0.0f);
  EXPECT_EQ(SymmetricScale(3.0f, 127.0f), FloatToHalf(3.0f / 127.0f));
  EXPECT_EQ(HalfToFloat(SymmetricScale(1e30f, 7.0f)), kMaxHalf);
  EXPECT_EQ(InverseScale(0.0f), 0.0f);
  EXPECT_EQ(InverseScale(0.3f), 1.0f / 0.3f);
  EXPECT_EQ(Scaled(kInf, 0.0f), 0.0f);
  EXPECT_EQ(Scaled(kNan, 2.0f), 0.0f);
}

}  // namespace
}  // namespace turboquant
