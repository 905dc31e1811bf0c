#include "calibration/abs_max.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace turboquant {
namespace {

float LargestCode(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kInt8:
      return 127;
    case KvCacheDtype::kInt4:
      return 7;
    case KvCacheDtype::kInt4Asym:
      return 15;
    case KvCacheDtype::kFp8E4m3:
      return 448;
    case KvCacheDtype::kFp8E5m2:
      return 57344;
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return 1;
  }
  return 1;
}

std::vector<float> SideScales(std::span<const float> maxima, const KvSideSpec& side,
                              int num_kv_heads, int head_dim) {
  if (!IsStatic(side.granularity)) return {};
  CHECK_EQ(maxima.size(), static_cast<size_t>(num_kv_heads) * static_cast<size_t>(head_dim));
  size_t values_per_scale = 1;  // kPerChannel
  if (side.granularity == ScaleGranularity::kPerHead)
    values_per_scale = static_cast<size_t>(head_dim);
  if (side.granularity == ScaleGranularity::kPerTensor) values_per_scale = maxima.size();
  std::vector<float> scales;
  for (size_t at = 0; at < maxima.size(); at += values_per_scale) {
    const std::span<const float> shared = maxima.subspan(at, values_per_scale);
    const float max = *std::max_element(shared.begin(), shared.end());
    scales.push_back(max > 0 ? max / LargestCode(side.dtype) : 1.0f);
  }
  return scales;
}

}  // namespace

KvRangeObserver MakeRangeObserver(const std::vector<KvCacheSpec>& layers) {
  KvRangeObserver observer;
  for (const KvCacheSpec& spec : layers) {
    const std::vector<float> zeros(static_cast<size_t>(spec.num_kv_heads) *
                                   static_cast<size_t>(spec.head_dim));
    observer.layers.push_back({.k = zeros, .v = zeros});
  }
  return observer;
}

KvStaticScales AbsMaxScales(const KvRangeObserver::Layer& ranges, const KvCacheSpec& spec) {
  return {.k = SideScales(ranges.k, spec.k, spec.num_kv_heads, spec.head_dim),
          .v = SideScales(ranges.v, spec.v, spec.num_kv_heads, spec.head_dim)};
}

}  // namespace turboquant
