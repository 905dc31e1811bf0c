#include "codec/stored_run.h"

#include <array>
#include <cstddef>

#include "base/half.h"
#include "codec/block_mean.h"
#include "codec/correction.h"
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

void ReadRun(const ReadRunArgs& args) {
  const KvCacheSpec& spec = *args.spec;
  const KvBlockLayout& layout = *args.layout;
  const bool key = args.side == KvSide::kKey;
  const KvSideSpec& side = key ? spec.k : spec.v;
  const size_t scales_at = key ? layout.k_scales : layout.v_scales;
  const uint16_t* scales = HalvesAt(args.run, scales_at);
  std::array<uint16_t, kMaxBlockTokens> expanded;
  if (side.HasByteScales()) {
    const size_t bias_at = key ? layout.k_scale_bias : layout.v_scale_bias;
    ExpandScales({.codes = args.run + scales_at,
                  .bias = static_cast<int16_t>(*HalvesAt(args.run, bias_at)),
                  .num_tokens = spec.block_size,
                  .scales = expanded.data()});
    scales = expanded.data();
  }
  std::array<float, kMaxHeadDimOfSpec> channels;
  HeadScales given = args.static_scales;
  if (side.HasCorrection()) {
    const size_t correction_at = key ? layout.k_correction : layout.v_correction;
    given = Corrected(given, *HalvesAt(args.run, correction_at), spec.head_dim, &channels);
  }
  DecodeTile(
      {.shape = {.side = args.side, .num_tokens = spec.block_size, .head_dim = spec.head_dim},
       .spec = side,
       .lines = args.run + (key ? layout.k_lines : layout.v_lines),
       .scales = scales,
       .zero_points = HalvesAt(args.run, key ? layout.k_zero_points : layout.v_zero_points),
       .static_scales = given,
       .x = args.x});
  if (key && side.HasMean()) AddMean(args);
}

}  // namespace turboquant
