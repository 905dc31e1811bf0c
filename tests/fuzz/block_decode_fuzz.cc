// Any bytes as the stored codes, scales and zero points of a tile, under any spec: DecodeTile reads
// and writes nothing but what it was given, and gives the same values again. Then any floats
// through EncodeTile and back: what is decoded from finite values is finite.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "codec/scale_fit.h"
#include "codec/tile.h"
#include "tests/fuzz/byte_source.h"

namespace turboquant {
namespace {

KvSideSpec TakeSide(ByteSource& in) {
  KvSideSpec side;
  side.dtype = in.Pick(kAllKvCacheDtypes);
  side.granularity = static_cast<ScaleGranularity>(in.Byte() % 8);
  side.group_size = side.granularity == ScaleGranularity::kPerGroup ? 32 << (in.Byte() % 3) : 0;
  return side;
}

// Exactly as large as the tile needs, so that the sanitizer sees the first byte beyond.
struct Tile {
  std::vector<uint8_t> lines;
  std::vector<uint16_t> scales, zero_points;
  std::vector<float> channels;
  HeadScales static_scales;

  Tile(const KvSideSpec& spec, const TileShape& shape, ByteSource& in) {
    const auto tokens = static_cast<size_t>(shape.num_tokens);
    lines.resize(LineBytes(spec.dtype, shape));
    scales.resize(tokens * static_cast<size_t>(spec.ScalesPerToken(shape.head_dim)));
    if (spec.HasZeroPoint()) zero_points.resize(scales.size());
    if (spec.granularity == ScaleGranularity::kPerChannel) {
      channels.resize(static_cast<size_t>(shape.head_dim));
      for (float& scale : channels) scale = StaticScale(in);
      static_scales.channels = channels.data();
    } else if (IsStatic(spec.granularity)) {
      static_scales.head = StaticScale(in);
    } else if (spec.granularity == ScaleGranularity::kPerBlock) {
      static_scales.head =
          HalfToFloat(static_cast<uint16_t>((in.Byte() << 8 | in.Byte()) % 0x7C00));
    }
  }
  // Within what ValidateStaticScales takes.
  static float StaticScale(ByteSource& in) {
    return std::ldexp(1.0f + static_cast<float>(in.Byte()) / 256, in.Byte() % 250 - 125);
  }
};

std::vector<float> Decode(const KvSideSpec& spec, const TileShape& shape, const Tile& tile) {
  std::vector<float> x(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.head_dim),
                       -1234.5f);
  DecodeTile({.shape = shape,
              .spec = spec,
              .lines = tile.lines.data(),
              .scales = tile.scales.data(),
              .zero_points = tile.zero_points.data(),
              .static_scales = tile.static_scales,
              .x = x.data()});
  return x;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void DecodeAnyBytes(const KvSideSpec& spec, const TileShape& shape, ByteSource& in) {
  Tile tile(spec, shape, in);
  in.Fill(tile.scales);
  in.Fill(tile.zero_points);
  in.Fill(tile.lines);
  const std::vector<float> x = Decode(spec, shape, tile);
  CHECK(SameBits(x, Decode(spec, shape, tile)));
  // One code read by the rule of the layout alone: AddressOf stays inside the lines.
  const int token = in.Byte() % shape.num_tokens, channel = in.Byte() % shape.head_dim;
  const CodeAddress address = AddressOf(spec.dtype, shape, token, channel);
  CHECK_LE(address.byte + static_cast<size_t>(std::max(CodeBits(spec.dtype), 8)) / 8,
           tile.lines.size());
}

void EncodeAnyFloats(const KvSideSpec& spec, const TileShape& shape, ByteSource& in) {
  Tile tile(spec, shape, in);
  std::vector<float> x(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.head_dim));
  in.Fill(x);
  if (spec.HasByteScales()) {
    std::vector<uint8_t> codes(tile.scales.size());
    int16_t bias = 0;
    FitScales({spec.dtype, x.data(), shape.num_tokens, shape.head_dim, codes.data(), &bias,
               tile.scales.data()});
  }
  int64_t end_codes = 0;
  EncodeTile({.shape = shape,
              .spec = spec,
              .x = x.data(),
              .static_scales = tile.static_scales,
              .lines = tile.lines.data(),
              .scales = tile.scales.data(),
              .zero_points = tile.zero_points.data(),
              .end_codes = &end_codes});
  CHECK_GE(end_codes, 0);
  CHECK_LE(end_codes, static_cast<int64_t>(x.size()));
  const bool narrow = CodeBits(spec.dtype) <= 8;
  // f16 holds no more than 65504; static scales up to 2^126 may reach infinity.
  const bool can_overflow = spec.dtype == KvCacheDtype::kF16 || spec.dtype == KvCacheDtype::kBf16 ||
                            IsStatic(spec.granularity);
  const std::vector<float> back = Decode(spec, shape, tile);
  for (size_t i = 0; i < x.size(); ++i) {
    if (narrow) CHECK(!std::isnan(back[i]));
    if ((narrow || std::isfinite(x[i])) && !can_overflow) CHECK(std::isfinite(back[i]));
    if (spec.dtype == KvCacheDtype::kF32) CHECK_EQ(std::memcmp(&x[i], &back[i], sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace turboquant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  ByteSource in(data, size);
  KvCacheSpec spec;
  spec.k = TakeSide(in);
  spec.v = TakeSide(in);
  spec.num_kv_heads = 1 + in.Byte() % 4;
  // Mostly small: a tile of 16 x 32 shows what a tile of 256 x 256 does, 128 times as often.
  const uint8_t extent = in.Byte();
  spec.head_dim = extent % 8 == 0 ? in.Byte() : 16 * (1 + in.Byte() % (extent % 8 == 1 ? 16 : 4));
  spec.block_size = 16 << (in.Byte() % (extent % 16 == 2 ? 5 : 2));
  if (!spec.Validate()) return 0;
  for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
    const KvSideSpec& of_side = side == KvSide::kKey ? spec.k : spec.v;
    const TileShape shape = {
        .side = side, .num_tokens = spec.block_size, .head_dim = spec.head_dim};
    DecodeAnyBytes(of_side, shape, in);
    EncodeAnyFloats(of_side, shape, in);
  }
  return 0;
}
