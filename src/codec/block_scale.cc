#include "codec/block_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/half.h"
#include "codec/scale.h"

namespace turboquant {
namespace {

// The smallest f16 that is no less than x, 1 <= x <= kMaxHalf.
uint16_t HalfNotBelow(float x) {
  const uint16_t nearest = FloatToHalf(x);
  return HalfToFloat(nearest) < x ? static_cast<uint16_t>(nearest + 1) : nearest;
}

// Of a float without its sign: ordered like the magnitudes.
uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }

constexpr uint32_t kInfinityBits = 0x7F800000u;

struct Extent {
  uint32_t largest = 0;  // bits of the largest |x| * inverse
  int beyond = 0;        // values over 1
};

// inverse: 1 / (scale * largest code) per channel
Extent Measure(const BlockScaleArgs& args, const std::array<float, kMaxHeadDimOfSpec>& inverse) {
  const uint32_t one = MagnitudeBits(1.0f), most = MagnitudeBits(kMaxHalf);
  const auto head_dim = static_cast<size_t>(args.head_dim);
  Extent extent;
  for (size_t t = 0; t < static_cast<size_t>(args.num_tokens); ++t) {
    const float* row = args.x + t * head_dim;
    for (size_t c = 0; c < head_dim; ++c) {
      const uint32_t product = std::min(MagnitudeBits(row[c] * inverse[c]), most);
      const uint32_t bits = MagnitudeBits(row[c]) < kInfinityBits ? product : 0;
      extent.largest = std::max(extent.largest, bits);
      extent.beyond += bits > one ? 1 : 0;
    }
  }
  return extent;
}

BlockScale FitCorrection(const BlockScaleArgs& args) {
  CHECK_LE(args.head_dim, kMaxHeadDimOfSpec);
  const float largest_code = LargestCode(args.side.dtype);
  std::array<float, kMaxHeadDimOfSpec> inverse{};
  for (size_t c = 0; c < static_cast<size_t>(args.head_dim); ++c) {
    const float* channels = args.static_scales.channels;
    inverse[c] = 1 / ((channels == nullptr ? args.static_scales.head : channels[c]) * largest_code);
  }
  const Extent extent = Measure(args, inverse);
  BlockScale scale{.reach = std::bit_cast<float>(extent.largest)};
  const bool clipped =
      1000LL * extent.beyond > int64_t{kUncorrectedPerMille} * args.num_tokens * args.head_dim;
  if (scale.reach > kUncorrectedReach || clipped) scale.factor = HalfNotBelow(scale.reach);
  return scale;
}

}  // namespace

BlockScale FitBlockScale(const BlockScaleArgs& args) {
  if (IsStatic(args.side.granularity)) return FitCorrection(args);
  const size_t count = static_cast<size_t>(args.num_tokens) * static_cast<size_t>(args.head_dim);
  const float amax = FiniteAmax({args.x, count});
  return {.reach = 0, .factor = SymmetricScale(amax, LargestCode(args.side.dtype))};
}

HeadScales ScaledBy(const HeadScales& scales, uint16_t factor, int head_dim,
                    std::array<float, kMaxHeadDimOfSpec>* channels) {
  const float by = HalfToFloat(factor);
  if (scales.channels == nullptr) return {.head = scales.head * by};
  for (size_t c = 0; c < static_cast<size_t>(head_dim); ++c) {
    (*channels)[c] = scales.channels[c] * by;
  }
  return {.channels = channels->data()};
}

}  // namespace turboquant
