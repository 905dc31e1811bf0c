// The tables that everybody quotes, first as they are quoted and then with what they leave out;
// and what vLLM prints.
#include "planner_test_util.h"

namespace turboquant {
namespace {

TEST(PlannerTables, SevenBillionAtFp16) {
  for (const auto& [context, gib] : {std::pair(2048, 1), {4096, 2}, {8192, 4}, {32768, 16}}) {
    const Ledger ledger = Make("llama-2-7b", {.context = context});
    EXPECT_EQ(ledger.cache.payload, static_cast<uint64_t>(gib) * kGiB);
    EXPECT_EQ(ledger.cache.scales + ledger.cache.padding, 0u);
    // Left out in the tables: the newest block is held once more, exact (f16 needs no sinks).
    EXPECT_EQ(ledger.cache.sequences, 64 * 512 * kKiB);
  }
}

// "60 GB for the cache, 4,096 tokens each: 30 at FP16, 60 at INT8, 120 at INT4".
TEST(PlannerTables, SequencesIn60GiB) {
  constexpr uint64_t kBudget = 60 * kGiB;
  struct Row {
    const char* format;
    uint64_t quoted;
    int64_t real;
  };
  for (const Row& row : {Row{"f16", 30, 29}, {"int8", 60, 56}, {"int4", 120, 108}}) {
    const LedgerSource source = Source("llama-2-7b");
    LedgerOptions options = Options({.format = row.format, .context = 4096});
    options.cache.kv_cache_memory = kBudget;
    const auto ledger = source.Make(options);
    ASSERT_TRUE(ledger) << ledger.error().message;
    EXPECT_EQ(kBudget / ledger->cache.payload, row.quoted);
    // With scales, and with the exact newest and first tokens of each sequence.
    const auto answers = Answer(source, options);
    ASSERT_TRUE(answers) << answers.error().message;
    const uint64_t each = ledger->cache.total();
    EXPECT_EQ(static_cast<uint64_t>(answers->max_sequences), kBudget / each) << row.format;
    EXPECT_EQ(answers->max_sequences, row.real) << row.format;
  }
}

// By hand, bytes per token: int8 is 32 x 32 x (2 x 128 + 5), int4 half the codes and 4 bytes beside
// them.
TEST(PlannerTables, OneSequenceByHand) {
  const uint64_t tail = 64 * 512 * kKiB, sinks = 16 * 512 * kKiB;
  const Ledger int8 = Make("llama-2-7b", {.format = "int8"});
  EXPECT_EQ(int8.cache.total(), 4096u * 32 * 32 * (2 * 128 + 5) + tail + sinks);
  const Ledger int4 = Make("llama-2-7b", {.format = "int4"});
  EXPECT_EQ(int4.cache.total(), 4096u * 32 * 32 * (2 * 64 + 4) + tail + sinks);
}

// vLLM's documentation: Qwen3-4B on a 24 GB L4, 11.47 GiB left for the cache: 83,488 tokens in BF16
// and 166,992 in FP8.
TEST(PlannerTables, VllmOnQwen3) {
  struct Row {
    const char* format;
    double tokens;
  };
  for (const Row& row : {Row{"auto", 83488}, {"fp8", 166992}}) {
    LedgerOptions options =
        Options({.engine = EngineKind::kVllm, .format = row.format, .context = 40960});
    options.cache.kv_cache_memory = static_cast<uint64_t>(11.47 * static_cast<double>(kGiB));
    const auto answers = Answer(Source("qwen3-4b"), options);
    ASSERT_TRUE(answers) << answers.error().message;
    EXPECT_NEAR(static_cast<double>(answers->max_context), row.tokens, 0.001 * row.tokens);
  }
}

TEST(PlannerTables, RooflineReadsWeightsOnceAndEveryCache) {
  LedgerOptions options = Options({.format = "f16", .context = 4096, .num_seqs = 8});
  const auto ledger = Source("llama-3.1-8b").Make(options);
  ASSERT_TRUE(ledger) << ledger.error().message;
  const auto points = Roofline(*ledger, 100e9);
  // The embedding is looked up, not read: 128256 x 4096 parameters less.
  const double weights = 2.0 * (8030261248.0 - 128256.0 * 4096);
  EXPECT_NEAR(static_cast<double>(points.back().weight_bytes), weights, 1e-6 * weights);
  EXPECT_EQ(points.back().depth, 4096);
  EXPECT_EQ(points.back().cache_bytes, 8u * 4096 * 128 * kKiB);
  EXPECT_NEAR(points.back().tokens_per_second, 8 * 100e9 / (weights + 8.0 * 4096 * 131072), 0.01);
}

TEST(PlannerTables, ExpertsAreReadAsTheyAreMet) {
  const LedgerSource source = Source("qwen3-30b-a3b");
  const auto share = [&](int num_seqs) {
    const auto ledger = source.Make(Options({.num_seqs = num_seqs}));
    EXPECT_TRUE(ledger) << ledger.error().message;
    return static_cast<double>(Roofline(*ledger, 1e9).front().weight_bytes) /
           static_cast<double>(ledger->weights_bytes());
  };
  EXPECT_NEAR(share(1), 3.04e9 / 30.53e9, 0.005);  // 3.3 B active less the embedding
  EXPECT_GT(share(64), 0.95);
  EXPECT_LT(share(64), 1.0);
}

}  // namespace
}  // namespace turboquant
