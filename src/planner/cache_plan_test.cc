#include "planner/cache_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace turboquant {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// SmolLM2-135M's shape.
ModelConfig Model() {
  ModelConfig model;
  model.num_layers = 30;
  model.num_heads = 9;
  model.num_kv_heads = 3;
  model.head_dim = 64;
  model.max_context = 8192;
  return model;
}
constexpr MemoryBudget kPlenty = {.usable_bytes = 8192 * kMiB, .reserved_bytes = 100 * kMiB};

CachePlan Plan(const CachePlanOptions& options, const MemoryBudget& memory = kPlenty) {
  auto plan = PlanCache(Model(), options, memory);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan.value_or(CachePlan{});
}
Error PlanError(const CachePlanOptions& options, const MemoryBudget& memory = kPlenty) {
  auto plan = PlanCache(Model(), options, memory);
  EXPECT_FALSE(plan);
  return plan ? Error{} : plan.error();
}
#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

TEST(CachePlan, DefaultIsTheModelsContextInInt8) {
  const CachePlan plan = Plan({});
  EXPECT_EQ(plan.max_model_len, 8192);
  EXPECT_EQ(plan.config.num_blocks, 128);
  // 64 tokens: 3 heads x (K and V: 64 scales of 2 bytes, 64 x 64 codes), 30 layers.
  EXPECT_EQ(plan.block_bytes, 30u * 3 * 2 * (128 + 4096));
  EXPECT_EQ(plan.pool_bytes, 128 * plan.block_bytes);
  EXPECT_DOUBLE_EQ(plan.bits_per_value, 8.25);
  EXPECT_DOUBLE_EQ(plan.bytes_per_token, 30 * 3 * 2 * 66);
  EXPECT_EQ(plan.f16_bytes_per_token, 30u * 3 * 2 * 64 * 2);
  EXPECT_EQ(plan.PoolTokens(), 8192);
  EXPECT_EQ(plan.formats, plan.config.layers[0].ToString());
  EXPECT_TRUE(plan.notes.empty());
}

TEST(CachePlan, IsWhatTheManagerReserves) {
  const CachePlan plan =
      Plan({.kv_cache_dtype_layers = "0-3:f16", .max_num_seqs = 3, .max_model_len = 1000});
  auto manager = KvCacheManager::Create(plan.config);
  ASSERT_TRUE(manager) << manager.error().message;
  EXPECT_EQ((*manager)->Stats().block_bytes_reserved, plan.pool_bytes);
  EXPECT_EQ((*manager)->Stats().sequence_bytes_reserved, plan.sequence_bytes);
  EXPECT_EQ(plan.config.num_blocks, 3 * (1000 / 64));
}

TEST(CachePlan, RecentTokensAreWholeBlocks) {
  const CachePlan plan = Plan(
      {.kv_cache_dtype = "int4", .kv_cache_dtype_layers = "0-3:f16", .num_recent_tokens = 500});
  EXPECT_EQ(plan.config.num_recent_tokens, 512);
  EXPECT_HAS(plan.formats, ", newest 512 int8");
  // 26 layers of 3 heads, 512 tokens of K and V with 66 bytes each.
  const CachePlan without = Plan({.kv_cache_dtype = "int4", .kv_cache_dtype_layers = "0-3:f16"});
  EXPECT_EQ(plan.sequence_bytes - without.sequence_bytes, 26u * 3 * 512 * 2 * 66);
  EXPECT_EQ(plan.bits_per_value, without.bits_per_value);
  auto manager = KvCacheManager::Create(plan.config);
  ASSERT_TRUE(manager) << manager.error().message;
  EXPECT_EQ((*manager)->Stats().sequence_bytes_reserved, plan.sequence_bytes);

  EXPECT_HAS(PlanError({.kv_cache_dtype = "int8", .num_recent_tokens = 512}).message,
             "--kv-recent-tokens 512: no layer of int8");
  EXPECT_HAS(PlanError({.kv_cache_dtype = "int4", .num_recent_tokens = -1}).message,
             "--kv-recent-tokens -1");
}

TEST(CachePlan, OverridesApplyInOrder) {
  const CachePlan plan = Plan(
      {.kv_cache_dtype = "int8/int4", .kv_cache_dtype_layers = "0-3:f16,28-29:fp8_e4m3,2:int8"});
  EXPECT_EQ(plan.config.layers[0].k.dtype, KvCacheDtype::kF16);
  EXPECT_EQ(plan.config.layers[2].v.dtype, KvCacheDtype::kInt8);
  EXPECT_EQ(plan.config.layers[3].v.dtype, KvCacheDtype::kF16);
  EXPECT_EQ(plan.config.layers[4].k.dtype, KvCacheDtype::kInt8);
  EXPECT_EQ(plan.config.layers[4].v.dtype, KvCacheDtype::kInt4);
  EXPECT_EQ(plan.config.layers[29].k.dtype, KvCacheDtype::kFp8E4m3);
  EXPECT_HAS(plan.formats, "0-1 ");
  EXPECT_HAS(plan.formats, ", 2 ");
  EXPECT_HAS(plan.formats, ", 4-27 ");
  EXPECT_EQ(
      Plan({.kv_cache_dtype = "int4", .kv_cache_dtype_layers = "1:int8,3:int8,5:f16,7:int8,9:int8"})
          .formats,
      "3 formats by layer");
}

TEST(CachePlan, RefusesBadOverrides) {
  for (const char* text :
       {"f16", "0-:f16", "-3:f16", "0-3", "0-3:", "3-1:f16", "a:f16", "0:f16,,1:f16", "0x:f16"}) {
    EXPECT_HAS(PlanError({.kv_cache_dtype_layers = text}).message, "want LAYER:FORMAT");
  }
  EXPECT_HAS(PlanError({.kv_cache_dtype_layers = "0-30:f16"}).message,
             "the model has layers 0 to 29");
  EXPECT_HAS(PlanError({.kv_cache_dtype_layers = "0:int9"}).message, "int9");
}

TEST(CachePlan, RefusesBadOptions) {
  EXPECT_HAS(PlanError({.max_num_seqs = 0}).message, "--max-num-seqs 0");
  EXPECT_HAS(PlanError({.max_model_len = -1}).message, "--max-model-len -1");
  EXPECT_HAS(PlanError({.memory_utilization = 1.5}).message, "--memory-utilization 1.5");
  EXPECT_HAS(PlanError({.memory_utilization = 0}).message, "--memory-utilization 0");
  EXPECT_HAS(PlanError({.num_sink_tokens = 17}).message, "0 to 16");
  EXPECT_EQ(PlanError({.kv_cache_dtype = "int9"}).code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(PlanError({.block_size = 24}).message.empty());
  EXPECT_HAS(PlanError({.kv_scale_granularity = "per_head"}).message, "calibration table");
}

TEST(CachePlan, AnImportedTableServesPlainScalesOnly) {
  auto table = std::make_shared<CalibrationTable>();
  table->clip_rule = kImported;
  const CalibratedSide side = {
      .ranges = {448, 224, 112}, .rotated_ranges = {}, .channel_ranges = {}};
  table->layers.assign(30, {.k = side, .v = side});
  const CachePlanOptions rotated = {
      .kv_cache_dtype = "fp8_e4m3", .kv_scale_granularity = "per_head", .calibration = table};
  EXPECT_HAS(PlanError(rotated).message, "--kv-transform none");
  CachePlanOptions plain = rotated;
  plain.kv_transform = "none";
  EXPECT_EQ(Plan(plain).config.static_scales.at(29).k, (std::vector<float>{1, 0.5, 0.25}));
  CachePlanOptions channels = plain;
  channels.kv_scale_granularity = "per_channel";
  EXPECT_HAS(PlanError(channels).message, "per_channel");
  CachePlanOptions half = rotated;  // rotated on one side only
  half.kv_transform = "none/rotated";
  EXPECT_HAS(PlanError(half).message, "--kv-transform none");
}

TEST(CachePlan, BalanceHoldsForLayersWithTheirOwnFormat) {
  auto table = std::make_shared<CalibrationTable>();
  table->clip_rule = "max";
  table->layers.assign(30,
                       {.k = {}, .v = {}, .k_balance = std::vector<double>(size_t{3} * 64, 1.5)});
  CachePlanOptions options = {.kv_cache_dtype = "int4",
                              .kv_transform = "balanced",
                              .kv_cache_dtype_layers = "0:f16,1:int5/int8,2:int8/f16",
                              .calibration = table};
  const CachePlan plan = Plan(options);
  EXPECT_EQ(plan.config.layers[0].k.transform, KvTransform::kNone);
  for (const size_t layer : {1, 2, 3}) {
    EXPECT_EQ(plan.config.layers[layer].k.transform, KvTransform::kBalanced);
    EXPECT_EQ(plan.config.static_scales[layer].k_balance,
              (std::vector<float>(size_t{3} * 64, 1.5f)));
  }
  EXPECT_TRUE(plan.config.static_scales[0].k_balance.empty());
  EXPECT_EQ(plan.config.layers[1].v.transform, KvTransform::kRotated);
  options.calibration = nullptr;
  EXPECT_HAS(PlanError(options).message, "--kv-transform centered");
}

TEST(CachePlan, CutsTheModelsContextToTheMemory) {
  const CachePlanOptions options = {.kv_cache_memory = 20 * kMiB};
  const CachePlan plan = Plan(options);
  EXPECT_EQ(plan.config.num_blocks,
            static_cast<int>((20 * kMiB - plan.sequence_bytes) / plan.block_bytes));
  EXPECT_EQ(plan.max_model_len, plan.config.num_blocks * 64);
  EXPECT_LT(plan.max_model_len, 8192);
  EXPECT_LE(plan.pool_bytes + plan.sequence_bytes, 20 * kMiB);
  EXPECT_GT(plan.pool_bytes + plan.sequence_bytes + plan.block_bytes, 20 * kMiB);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_HAS(plan.notes[0], "cut from the model's 8192");
}

TEST(CachePlan, MemoryAskedForIsThePool) {
  const CachePlan plan = Plan({.max_model_len = 1000, .kv_cache_memory = 200 * kMiB});
  EXPECT_GT(plan.PoolTokens(), 1000);
  EXPECT_LE(plan.pool_bytes + plan.sequence_bytes, 200 * kMiB);
  EXPECT_GT(plan.pool_bytes + plan.sequence_bytes + plan.block_bytes, 200 * kMiB);
}

TEST(CachePlan, RefusesAContextThatDoesNotFitAndSaysWhatWould) {
  const Error error = PlanError({.max_model_len = 8192, .kv_cache_memory = 80 * kMiB});
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_HAS(error.message, "a context of 8192 tokens needs");
  EXPECT_HAS(error.message, "--kv-cache-dtype int6");
  // What it says would fit does, and one token more does not.
  const size_t at = error.message.find("--max-model-len ");
  ASSERT_NE(at, std::string::npos) << error.message;
  const int fits = std::stoi(error.message.substr(at + 16));
  EXPECT_EQ(Plan({.max_model_len = fits, .kv_cache_memory = 80 * kMiB}).max_model_len, fits);
  PlanError({.max_model_len = fits + 1, .kv_cache_memory = 80 * kMiB});
  Plan({.kv_cache_dtype = "int4", .max_model_len = 8192, .kv_cache_memory = 80 * kMiB});
}

TEST(CachePlan, TailsOfTooManySequencesAreAnError) {
  const Error error =
      PlanError({.max_num_seqs = 100, .max_model_len = 64, .kv_cache_memory = 20 * kMiB});
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  const size_t at = error.message.find("--max-num-seqs ");
  ASSERT_NE(at, std::string::npos) << error.message;
  const int fits = std::stoi(error.message.substr(at + 15));
  Plan({.max_num_seqs = fits, .max_model_len = 64, .kv_cache_memory = 20 * kMiB});
  PlanError({.max_num_seqs = fits + 1, .max_model_len = 64, .kv_cache_memory = 20 * kMiB});
}

TEST(CachePlan, ShareOfMemoryCountsWeights) {
  const MemoryBudget memory = {.usable_bytes = 1000 * kMiB, .reserved_bytes = 480 * kMiB};
  const CachePlan plan = Plan({.max_num_seqs = 64, .memory_utilization = 0.7}, memory);
  EXPECT_LE(plan.pool_bytes + plan.sequence_bytes, 220 * kMiB);
  EXPECT_GT(plan.pool_bytes + plan.sequence_bytes + plan.block_bytes, 220 * kMiB);
  EXPECT_HAS(plan.notes.at(0), "the pool holds");
  EXPECT_HAS(PlanError({.memory_utilization = 0.4}, memory).message, "no memory for the KV cache");
  EXPECT_HAS(PlanError({.kv_cache_memory = 521 * kMiB}, memory).message,
             "--kv-cache-memory 521 MiB");
  Plan({.kv_cache_memory = 520 * kMiB}, memory);
}

TEST(CachePlan, ContextBeyondTheModelsIsSaid) {
  const CachePlan plan = Plan({.max_model_len = 30000});
  EXPECT_EQ(plan.max_model_len, 30000);
  EXPECT_HAS(plan.notes.at(0), "trained for 8192");
}

TEST(CachePlan, AbsurdContextIsRefusedNotOverflown) {
  const Error error = PlanError({.max_model_len = 2147483647});
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace turboquant
