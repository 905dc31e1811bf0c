// What is said to fit fits, and one more does not.
#include "planner_test_util.h"

namespace turboquant {
namespace {

bool Fits(const LedgerSource& source, LedgerOptions options, int64_t context, int64_t num_seqs) {
  options.cache.max_model_len = static_cast<int>(context);
  options.cache.max_num_seqs = static_cast<int>(num_seqs);
  const auto ledger = source.Make(options);
  return ledger && ledger->fits();
}

struct Case {
  const char* model;
  Asked asked;
};
const Case kCases[] = {
    {"llama-3.1-8b", {.format = "f16", .context = 32768, .num_seqs = 4, .memory = 24 * kGiB}},
    {"llama-3.1-8b", {.format = "int8", .context = 131072, .num_seqs = 2, .memory = 32 * kGiB}},
    {"llama-2-7b", {.format = "f16", .context = 4096, .num_seqs = 64, .memory = 48 * kGiB}},
    {"qwen3-4b", {.format = "f16", .context = 40960, .num_seqs = 16, .memory = 20 * kGiB}},
    {"qwen2.5-7b", {.format = "int8/int4", .context = 100000, .num_seqs = 9, .memory = 20 * kGiB}},
    {"mistral-7b", {.format = "int4", .context = 32768, .num_seqs = 12, .memory = 17 * kGiB}},
    {"phi-4-mini", {.format = "f16", .context = 131072, .num_seqs = 1, .memory = 20 * kGiB}},
    {"llama-2-70b", {.format = "f16", .context = 4096, .num_seqs = 32, .memory = 160 * kGiB}},
    {"gemma-3-27b",
     {.engine = EngineKind::kLlamaCpp,
      .format = "f16",
      .context = 131072,
      .num_seqs = 4,
      .memory = 80 * kGiB}},
    {"llama-3.1-8b",
     {.engine = EngineKind::kLlamaCpp,
      .format = "q8_0",
      .context = 131072,
      .num_seqs = 4,
      .memory = 40 * kGiB}},
    {"qwen3-4b",
     {.engine = EngineKind::kVllm,
      .format = "auto",
      .context = 40960,
      .num_seqs = 8,
      .memory = 24 * kGiB}},
    {"deepseek-v3",
     {.engine = EngineKind::kVllm,
      .format = "auto",
      .context = 163840,
      .num_seqs = 64,
      .memory = 140 * kGiB,
      .ranks = 8}},
};

TEST(PlannerAnswers, WhatIsSaidToFitFits) {
  for (const Case& c : kCases) {
    const LedgerSource source = Source(c.model);
    const LedgerOptions options = Options(c.asked);
    const auto answers = Answer(source, options);
    ASSERT_TRUE(answers) << answers.error().message;
    const int64_t context = answers->max_context, most = answers->max_sequences;
    if (context > 0) EXPECT_TRUE(Fits(source, options, context, c.asked.num_seqs)) << c.model;
    EXPECT_FALSE(Fits(source, options, context + 1, c.asked.num_seqs)) << c.model;
    if (most > 0) EXPECT_TRUE(Fits(source, options, c.asked.context, most)) << c.model;
    EXPECT_FALSE(Fits(source, options, c.asked.context, most + 1)) << c.model;
  }
}

TEST(PlannerAnswers, EveryChangeHasBeenTried) {
  int num_changes = 0;
  for (const Case& c : kCases) {
    const LedgerSource source = Source(c.model);
    const auto ledger = source.Make(Options(c.asked));
    ASSERT_TRUE(ledger) << ledger.error().message;
    ASSERT_FALSE(ledger->fits()) << c.model << ": the case is meant not to fit";
    const auto answers = Answer(source, Options(c.asked));
    ASSERT_TRUE(answers);
    EXPECT_FALSE(answers->changes.empty()) << c.model;
    for (const Change& change : answers->changes) {
      ++num_changes;
      const auto tried = source.Make(change.options);
      ASSERT_TRUE(tried) << change.flags << ": " << tried.error().message;
      EXPECT_TRUE(tried->fits()) << c.model << " " << change.flags;
      EXPECT_LE(tried->cache.total(), tried->cache_limit_bytes);
      EXPECT_TRUE(change.flags.starts_with("--")) << change.flags;
    }
  }
  EXPECT_GE(num_changes, 24);
}

TEST(PlannerAnswers, AFormatComesBeforeFewerSequences) {
  const auto answers = Answer(Source("llama-3.1-8b"), Options(kCases[0].asked));
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->changes.at(0).flags, "--kv-cache-dtype int6");
  EXPECT_HAS(answers->changes.back().flags, "--memory ");
}

TEST(PlannerAnswers, TheGridAgreesWithLedgers) {
  const LedgerSource source = Source("qwen3-4b");
  const LedgerOptions options = Options({.format = "int8", .context = 8192, .memory = 16 * kGiB});
  const auto answers = Answer(source, options);
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->grid.size(),
            answers->capacities.size() * answers->contexts.size() * answers->sequences.size());
  for (const GridCell& cell : answers->grid) {
    LedgerOptions at = options;
    at.cache.kv_cache_dtype = cell.format;
    EXPECT_EQ(Fits(source, at, cell.context, cell.num_seqs), cell.fits)
        << cell.format << " " << cell.context << " x " << cell.num_seqs;
  }
}

// The ledger of a model that fits nothing at all says so instead of failing.
TEST(PlannerAnswers, NothingFits) {
  const auto answers =
      Answer(Source("llama-2-70b"), Options({.context = 4096, .memory = 1 * kGiB}));
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ(answers->max_context, 0);
  EXPECT_EQ(answers->max_sequences, 0);
  ASSERT_EQ(answers->changes.size(), 1u);
  EXPECT_HAS(answers->changes[0].flags, "--memory ");
}

}  // namespace
}  // namespace turboquant
