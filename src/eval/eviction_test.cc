#include "eval/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/attention_test_util.h"

namespace turboquant {
namespace {

using attention_test::Geometry;
using attention_test::Harness;
using attention_test::TestSequence;
using testing::ElementsAre;

constexpr int kBlock = 16, kHeadDim = 16, kHeads = 2;

// Two KV heads of one query head each; every query is one in channel 0.
class Evicting {
 public:
  explicit Evicting(const EvictionRule& rule, const KvRecipe* rounding = nullptr)
      : attention_(std::vector{KvCacheSpec{
                       .num_kv_heads = kHeads, .head_dim = kHeadDim, .block_size = kBlock}},
                   std::vector{LayerAttentionParams{.num_heads = kHeads, .scale = 1}}, rule,
                   rounding) {}

  // The next num_tokens tokens; key(head, block) and value(head, block) stand in channel 0 of all
  // tokens of a block. Channel 0 of the outputs: [num_tokens][kHeads].
  template <typename Key, typename Value>
  std::vector<float> Feed(int num_tokens, Key key, Value value) {
    constexpr size_t kWidth = size_t{kHeads} * kHeadDim;
    const auto rows = static_cast<size_t>(num_tokens);
    std::vector<float> q(rows * kWidth), k(rows * kWidth), v(rows * kWidth), out(rows * kWidth);
    for (size_t i = 0; i < rows * kHeads; ++i) {
      const int head = static_cast<int>(i) % kHeads,
                block = (start_ + static_cast<int>(i) / kHeads) / kBlock;
      q[i * kHeadDim] = 1;
      k[i * kHeadDim] = key(head, block);
      v[i * kHeadDim] = value(head, block);
    }
    const SequenceChunk chunk = {
        .sequence = {0}, .start = start_, .num_tokens = num_tokens, .first_row = 0};
    attention_.StoreKv(0, {&chunk, 1}, k.data(), kWidth, v.data(), kWidth, 0, 1);
    attention_.Attend(0, {&chunk, 1}, q.data(), kWidth, out.data(), kWidth, 0, 1);
    start_ += num_tokens;
    std::vector<float> channel;
    for (size_t i = 0; i < rows * kHeads; ++i) channel.push_back(out[i * kHeadDim]);
    return channel;
  }
  std::vector<int> Kept(int head) const {
    return {attention_.Kept(0, head).begin(), attention_.Kept(0, head).end()};
  }
  void Restart() { start_ = 0; }

 private:
  EvictingAttention attention_;
  int start_ = 0;
};

float Zero(int /*head*/, int /*block*/) { return 0; }
float Number(int /*head*/, int block) { return static_cast<float>(block); }

TEST(Eviction, TheBlockWithLeastAttentionGoesByHead) {
  Evicting cache({.num_blocks = 4, .by_score = true});
  const auto favourite = [](int head, int block) { return block == 1 + head ? 3.0f : 0.0f; };
  cache.Feed(4 * kBlock, favourite, Number);
  EXPECT_THAT(cache.Kept(0), ElementsAre(0, 1, 2));  // the fourth is the newest query's own
  cache.Feed(3 * kBlock + 1, favourite, Number);
  EXPECT_THAT(cache.Kept(0), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(cache.Kept(1), ElementsAre(0, 2, 5, 6));
}

// The newest half stays although nobody looks at it; the first block too.
TEST(Eviction, TheFirstAndTheNewestStay) {
  Evicting cache({.num_blocks = 4, .by_score = true});
  const auto fading = [](int /*head*/, int block) {
    return block == 0 ? -9.0f : -1.0f * static_cast<float>(block);
  };
  cache.Feed(8 * kBlock + 1, fading, Number);
  EXPECT_THAT(cache.Kept(0), ElementsAre(0, 1, 6, 7));
  Evicting newest({.num_blocks = 4, .by_score = false});
  newest.Feed(8 * kBlock + 1, fading, Number);
  EXPECT_THAT(newest.Kept(0), ElementsAre(0, 5, 6, 7));
}

// Equal keys: the mean of what is read, the first block, the newest and four tokens of the own one.
TEST(Eviction, WhatIsEvictedIsNotRead) {
  Evicting cache({.num_blocks = 2, .by_score = false});
  cache.Feed(5 * kBlock, Zero, Number);
  const std::vector<float> out = cache.Feed(4, Zero, Number);
  EXPECT_NEAR(out.back(), (16 * 0 + 16 * 4 + 4 * 5) / 36.0, 1e-6);
  cache.Restart();
  EXPECT_NEAR(cache.Feed(2 * kBlock, Zero, Number).back(), 0.5, 1e-6);
  EXPECT_THAT(cache.Kept(0), ElementsAre(0));
}

// Stores keys of 0 and half the values.
class HalvingRecipe : public KvRecipe {
 public:
  void OnToken(KvSide, float*, int) const override { ADD_FAILURE(); }
  void OnClose(KvSide side, int block, float* x, int num_tokens, int head_dim) const override {
    EXPECT_EQ(num_tokens, kBlock);
    EXPECT_EQ(head_dim, kHeadDim);
    for (int i = 0; i < num_tokens * head_dim; ++i) {
      const float in_channel_0 = i % head_dim == 0 ? Number(0, block) : 0;
      EXPECT_EQ(x[i], in_channel_0);  // keys too come token by token
      x[i] = side == KvSide::kKey ? 0 : x[i] / 2;
    }
  }
};

// The own block is read as it came, at every step: only closed ones have been through the recipe.
TEST(Eviction, ClosedBlocksAreReadAsTheRecipeStoredThem) {
  const HalvingRecipe recipe;
  Evicting cache({.num_blocks = 2, .by_score = false, .recipe = "recipe:halving"}, &recipe);
  const std::vector<float> first = cache.Feed(kBlock, Number, Number);
  EXPECT_EQ(first.back(), 0);
  // Keys of block 0 are 0 anyway, those of block 1 are 1: as they came, e times the weight.
  const double e = std::exp(1.0);
  EXPECT_NEAR(cache.Feed(kBlock, Number, Number).back(), e / (1 + e), 1e-6);
  // Block 1 with keys of 0 and values of 1/2; one own token of weight e^2.
  EXPECT_NEAR(cache.Feed(1, Number, Number).back(),
              (16 * 0.5 + std::exp(2.0) * 2) / (32 + std::exp(2.0)), 1e-6);
}

std::vector<float> Outputs(const EvictionRule* rule, int num_threads, int chunk_tokens) {
  const Geometry geometry = {.format = "f32", .num_kv_heads = 3, .group = 2, .block_size = kBlock};
  Harness harness({.layers = {geometry}, .num_threads = num_threads});
  EvictingAttention evicting(harness.manager().config().layers,
                             std::vector{LayerAttentionParams{.num_heads = 6, .scale = 1 / 8.0f}},
                             rule == nullptr ? EvictionRule{} : *rule, /*rounding=*/nullptr);
  if (rule != nullptr) harness.attention().set_stand_in(&evicting);
  TestSequence sequence = harness.Add(1);
  return harness.Feed(&sequence, 200, chunk_tokens)[0];
}

TEST(Eviction, KeepingEverythingIsPlainAttention) {
  const EvictionRule all = {.num_blocks = 13, .by_score = true};
  const EvictionRule some = {.num_blocks = 6, .by_score = true};
  const std::vector<float> plain = Outputs(nullptr, 1, 200);
  // Values are below 1.7; sums of 200 products in f32.
  EXPECT_THAT(Outputs(&all, 1, 200), testing::Pointwise(testing::FloatNear(1e-4f), plain));
  EXPECT_THAT(Outputs(&some, 1, 200),
              testing::Not(testing::Pointwise(testing::FloatNear(1e-4f), plain)));
}

TEST(Eviction, StepsAndThreadsChangeNothing) {
  const EvictionRule rule = {.num_blocks = 4, .by_score = true};
  const std::vector<float> once = Outputs(&rule, 1, 200);
  EXPECT_EQ(once, Outputs(&rule, 2, 200));
  EXPECT_EQ(once, Outputs(&rule, 1, 7));
}

TEST(Eviction, Names) {
  EXPECT_TRUE(IsEviction("recipe:keep512"));
  EXPECT_FALSE(IsEviction("recipe:int4"));
  const auto rule = ParseEvictionRule("recipe:keep512", 64);
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->num_blocks, 8);
  EXPECT_TRUE(rule->by_score);
  EXPECT_EQ(rule->recipe, "");
  EXPECT_FALSE(ParseEvictionRule("recipe:keep512_newest", 64)->by_score);
  EXPECT_EQ(ParseEvictionRule("recipe:keep128_int4", 64)->recipe, "recipe:int4");
  EXPECT_TRUE(ParseEvictionRule("recipe:keep128_int4", 64)->by_score);
  EXPECT_EQ(ParseEvictionRule("recipe:keep128_newest_q4_0", 64)->recipe, "recipe:q4_0");
  EXPECT_FALSE(ParseEvictionRule("recipe:keep128_newest_q4_0", 64)->by_score);
  for (const char* text :
       {"recipe:keep", "recipe:keep64", "recipe:keep100", "recipe:keep512x", "recipe:keep-128",
        "recipe:keep128_", "recipe:keep_newest", "recipe:keep9999999999"}) {
    EXPECT_FALSE(ParseEvictionRule(text, 64)) << text;
  }
}

}  // namespace
}  // namespace turboquant
