#include "attention/saturation.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

KvCacheSpec Spec(std::string_view granularity) {
  const auto pair = ParseKvFormat("int8", granularity, "", nullptr);
  EXPECT_TRUE(pair) << pair.error().message;
  return {.k = pair->k, .v = pair->v, .num_kv_heads = 2, .head_dim = 64, .block_size = 64};
}

// 2 layers whose ranges are used well.
SaturationCounts Sound(const std::vector<KvCacheSpec>& layers) {
  SaturationCounts counts = ZeroCounts(layers);
  for (SaturationCounts::Layer& layer : counts.layers) {
    layer.num_blocks = {10, 10};
    layer.num_codes = {40960, 40960};
    layer.k.reach = layer.v.reach = {0.9f, 0.8f};
    layer.k.end_codes = layer.v.end_codes = {10, 0};
  }
  return counts;
}

TEST(SaturationTest, SoundScalesGiveNoWarning) {
  const std::vector<KvCacheSpec> layers = {Spec("per_head"), Spec("per_tensor:fixed")};
  EXPECT_TRUE(SaturationWarnings(Sound(layers), layers).empty());
  EXPECT_TRUE(SaturationWarnings(ZeroCounts(layers), layers).empty());
}

TEST(SaturationTest, RangesThatWereFarTooSmallAreNamedByTheWorstHead) {
  const std::vector<KvCacheSpec> layers = {Spec("per_head"), Spec("per_head")};
  SaturationCounts counts = Sound(layers);
  counts.layers[0].v.corrected_blocks[0] = 1;
  counts.layers[1].k.corrected_blocks[1] = 5;
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());  // as a clipped range may be
  counts.layers[0].v.reach[0] = 2.5f;
  counts.layers[1].k.reach[1] = 3.7f;
  const auto lines = SaturationWarnings(counts, layers);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("2 heads, the worst layer 1 K head 1: values reach 3.7 times the range"),
            std::string::npos)
      << lines[0];
  EXPECT_EQ(NumCorrectedBlocks(counts, KvSide::kKey), 5);
  EXPECT_EQ(NumCorrectedBlocks(counts, KvSide::kValue), 1);
  EXPECT_EQ(NumBlocks(counts), 40);
}

TEST(SaturationTest, FixedScalesAreJudgedByTheirEndCodes) {
  const std::vector<KvCacheSpec> layers = {Spec("per_head:fixed"), Spec("per_token_head")};
  SaturationCounts counts = Sound(layers);
  counts.layers[1].k.end_codes[0] = 4000;  // dynamic: as it should be
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());
  counts.layers[0].k.end_codes[0] = 400;
  const auto lines = SaturationWarnings(counts, layers);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("layer 0 K head 0: 0.98 % of the codes are at the ends"),
            std::string::npos)
      << lines[0];
}

TEST(SaturationTest, ARangeFarTooLargeIsNoticed) {
  const std::vector<KvCacheSpec> layers = {Spec("per_head"), Spec("per_tensor")};
  SaturationCounts counts = Sound(layers);
  counts.layers[0].v.reach = {0.9f, 0.2f};
  counts.layers[1].v.reach = {0.9f, 0.2f};  // one range for both: head 0 needs it
  const auto lines = SaturationWarnings(counts, layers);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("layer 0 V head 1: values reach only 0.2 of the range"),
            std::string::npos)
      << lines[0];
  counts.layers[0].num_blocks = {7, 7};  // too little to say so
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());
}

// Ranges of 5 and 3 that stand at each other's head: neither is far enough off by itself.
TEST(SaturationTest, HeadsWithEachOthersRangeAreNamed) {
  const std::vector<KvCacheSpec> layers = {Spec("per_head"), Spec("per_tensor")};
  SaturationCounts counts = Sound(layers);
  counts.layers[0].v.reach = {0.8f * 3 / 5, 0.8f * 5 / 3};
  counts.layers[1].v.reach = {0.8f * 3 / 5, 0.8f * 5 / 3};  // one range for both
  const auto lines = SaturationWarnings(counts, layers);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("layer 0 V heads 1 and 0: the first is beyond its range"),
            std::string::npos)
      << lines[0];
  counts.layers[0].v.reach = {0.6f, 1.3f};  // as another text may do
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());
  counts.layers[0].v.reach = {0.4f, 0.99f};
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());
  counts.layers[0].v.reach = {0.5f, 1.3f};
  counts.layers[0].num_blocks = {10, 7};  // too little to say so
  EXPECT_TRUE(SaturationWarnings(counts, layers).empty());
}

}  // namespace
}  // namespace turboquant
