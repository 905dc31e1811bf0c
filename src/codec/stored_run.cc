#include "codec/stored_run.h"

#include <array>
#include <cstddef>

#include "base/half.h"
#include "codec/block_mean.h"
#include "codec/block_scale.h"
#include "codec/scale_fit.h"
#include "codec/tile.h"

namespace turboquant {
namespace {

const uint16_t* HalvesAt(const uint8_t* run, size_t offset) {
  return reinterpret_cast<const uint16_t*>(run + offset);
}

void AddMean(const ReadRunArgs& args) {
  const int bits = MeanBits(args.spec->k.dtype);
  const float scale = HalfToFloat(*HalvesAt(args.run, args.layout->k_mean_scale));
  const auto head_dim = static_cast<size_t>(args.spec->head_dim);
  for (size_t c = 0; c < head_dim; ++c) {
    const int code = MeanCode(args.run + args.layout->k_mean, bits, static_cast<int>(c));
    const float mean = scale * static_cast<float>(code);
    for (size_t t = 0; t < static_cast<size_t>(args.spec->block_size); ++t) {
      args.x[t * head_dim + c] += mean;
    }
  }
}

}  // namespace

void WriteRun(const WriteRunArgs& args) {
  const KvCacheSpec& spec = *args.spec;
  const bool key = args.side == KvSide::kKey;
  const KvSideSpec& side = key ? spec.k : spec.v;
  const SideOffsets at = OffsetsOf(*args.layout, args.side);
  const auto halves_at = [&](size_t offset) {
    return reinterpret_cast<uint16_t*>(args.run + offset);
  };
  if (key && side.HasMean()) {
    CenterKeys({args.x, spec.block_size, spec.head_dim, MeanBits(side.dtype),
                args.run + args.layout->k_mean, halves_at(args.layout->k_mean_scale)});
  }
  std::array<uint16_t, kMaxBlockTokens> fitted;
  uint16_t* scales = halves_at(at.scales);
  if (side.HasByteScales()) {
    FitScales({side.dtype, args.x, spec.block_size, spec.head_dim, args.run + at.scales,
               reinterpret_cast<int16_t*>(args.run + at.scale_bias), fitted.data()});
    scales = fitted.data();
  }
  HeadScales given = args.static_scales;
  std::array<float, kMaxHeadDimOfSpec> channels;
  if (side.HasBlockScale()) {
    uint16_t* factor = halves_at(at.block_scale);
    *factor = FitBlockScale({args.x, spec.block_size, spec.head_dim, side, given}).factor;
    given = ScaledBy(given, *factor, spec.head_dim, &channels);
  }
  EncodeTile(
      {.shape = {.side = args.side, .num_tokens = spec.block_size, .head_dim = spec.head_dim},
       .spec = side,
       .x = args.x,
       .static_scales = given,
       .lines = args.run + at.lines,
       .scales = scales,
       .zero_points = halves_at(at.zero_points),
       .end_codes = nullptr});
}

void ReadRun(const ReadRunArgs& args) {
  const KvCacheSpec& spec = *args.spec;
  const bool key = args.side == KvSide::kKey;
  const KvSideSpec& side = key ? spec.k : spec.v;
  const SideOffsets at = OffsetsOf(*args.layout, args.side);
  const uint16_t* scales = HalvesAt(args.run, at.scales);
  std::array<uint16_t, kMaxBlockTokens> expanded;
  if (side.HasByteScales()) {
    ExpandScales({.codes = args.run + at.scales,
                  .bias = static_cast<int16_t>(*HalvesAt(args.run, at.scale_bias)),
                  .num_tokens = spec.block_size,
                  .scales = expanded.data()});
    scales = expanded.data();
  }
  std::array<float, kMaxHeadDimOfSpec> channels;
  HeadScales given = args.static_scales;
  if (side.HasBlockScale()) {
    given = ScaledBy(given, *HalvesAt(args.run, at.block_scale), spec.head_dim, &channels);
  }
  DecodeTile(
      {.shape = {.side = args.side, .num_tokens = spec.block_size, .head_dim = spec.head_dim},
       .spec = side,
       .lines = args.run + at.lines,
       .scales = scales,
       .zero_points = HalvesAt(args.run, at.zero_points),
       .static_scales = given,
       .x = args.x});
  if (key && side.HasMean()) AddMean(args);
}

}  // namespace turboquant
