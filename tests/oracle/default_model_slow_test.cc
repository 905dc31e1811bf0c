// Our logits against libllama's on the default model: as it lies in the file, and with F32 weights
// on both sides.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/check.h"
#include "comparison.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

constexpr int kNumThreads = 1;  // more spin against each other on a busy machine
constexpr size_t kPrompts[] = {1, 33, 512};

// Written once per build folder.
std::string F32File() {
  WriteF32Copy(TURBOQUANT_DEFAULT_MODEL, TURBOQUANT_F32_MODEL);
  return TURBOQUANT_F32_MODEL;
}

std::vector<int32_t> EnglishTokens(const Tokenizer& tokenizer) {
  std::ifstream file(TURBOQUANT_SOURCE_DIR "/LICENSE");
  std::stringstream text;
  text << file.rdbuf();
  return tokenizer.Encode(text.str(), /*add_special=*/true, /*parse_special=*/false);
}

struct Case {
  std::string oracle_path;
  OracleCache oracle_cache;
  WeightMode our_weights;
  const char* our_cache;
  Bounds bounds;
};

void CompareDefaultModel(const Case& test) {
  const auto model = LoadModel(TURBOQUANT_DEFAULT_MODEL, test.our_weights);
  const std::vector<int32_t> text = EnglishTokens(model->tokenizer());
  CHECK_GE(text.size(), 512u);
  LlamaRun llama(test.oracle_path, test.oracle_cache, /*max_context=*/1024, kNumThreads);
  OurRun ours({.model = model, .kv_cache_dtype = test.our_cache, .num_threads = kNumThreads});
  Comparison comparison(fmt::format("{} cache", test.our_cache), test.bounds);
  for (const size_t prompt : kPrompts) {
    const OracleTokens oracle = RunOracle(&llama, std::span(text).first(prompt));
    comparison.Run(oracle, &ours, /*chunk_tokens=*/prompt);
    if (prompt > 1) comparison.Run(oracle, &ours, prompt / 5);
  }
  comparison.ExpectSameTop();
}

TEST(DefaultModel, F32WeightsAndCacheEqualLibllama) {
  CompareDefaultModel(
      {F32File(), OracleCache::kF32, WeightMode::kDequantized, "f32", kExactBounds});
}

TEST(DefaultModel, F32WeightsAndF16CacheAreCloseToLibllama) {
  CompareDefaultModel({F32File(), OracleCache::kF16, WeightMode::kDequantized, "f16", kHalfBounds});
}

TEST(DefaultModel, AsInTheFileIsCloseToLibllama) {
  CompareDefaultModel(
      {TURBOQUANT_DEFAULT_MODEL, OracleCache::kF16, WeightMode::kFile, "f16", kQuantizedBounds});
}

}  // namespace
}  // namespace turboquant
