#include "calibration/abs_max.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

KvCacheSpec TwoHeads(ScaleGranularity granularity, KvCacheDtype dtype = KvCacheDtype::kInt8) {
  return {.k = {dtype, granularity}, .v = {dtype, granularity}, .num_kv_heads = 2, .head_dim = 16};
}

KvRangeObserver::Layer Ranges() {
  KvRangeObserver::Layer layer{std::vector<float>(32, 0.0f), std::vector<float>(32, 0.0f)};
  layer.k[3] = 12.7f;
  layer.k[16 + 5] = 254.0f;
  layer.v[0] = 1.0f;
  return layer;
}

TEST(AbsMax, OneScalePerHead) {
  const KvStaticScales scales = AbsMaxScales(Ranges(), TwoHeads(ScaleGranularity::kPerHead));
  ASSERT_EQ(scales.k.size(), 2u);
  EXPECT_FLOAT_EQ(scales.k[0], 0.1f);
  EXPECT_FLOAT_EQ(scales.k[1], 2.0f);
  ASSERT_EQ(scales.v.size(), 2u);
  EXPECT_FLOAT_EQ(scales.v[0], 1.0f / 127);
  EXPECT_FLOAT_EQ(scales.v[1], 1.0f) << "nothing seen";
}

TEST(AbsMax, OneScalePerTensorIsTheLargest) {
  const KvStaticScales scales = AbsMaxScales(Ranges(), TwoHeads(ScaleGranularity::kPerTensor));
  ASSERT_EQ(scales.k.size(), 1u);
  EXPECT_FLOAT_EQ(scales.k[0], 2.0f);
}

TEST(AbsMax, OneScalePerChannel) {
  const KvStaticScales scales =
      AbsMaxScales(Ranges(), TwoHeads(ScaleGranularity::kPerChannel, KvCacheDtype::kInt4));
  ASSERT_EQ(scales.k.size(), 32u);
  EXPECT_FLOAT_EQ(scales.k[3], 12.7f / 7);
  EXPECT_FLOAT_EQ(scales.k[21], 254.0f / 7);
  EXPECT_FLOAT_EQ(scales.k[0], 1.0f);
}

TEST(AbsMax, DynamicSidesHaveNone) {
  const KvStaticScales scales = AbsMaxScales(Ranges(), TwoHeads(ScaleGranularity::kPerTokenHead));
  EXPECT_TRUE(scales.k.empty());
  EXPECT_TRUE(scales.v.empty());
}

TEST(AbsMax, ObserverHasRoomForEveryChannel) {
  const KvRangeObserver observer = MakeRangeObserver(
      {TwoHeads(ScaleGranularity::kPerHead), TwoHeads(ScaleGranularity::kPerHead)});
  ASSERT_EQ(observer.layers.size(), 2u);
  EXPECT_EQ(observer.layers[1].v.size(), 32u);
}

}  // namespace
}  // namespace turboquant
