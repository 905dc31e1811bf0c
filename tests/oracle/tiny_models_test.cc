// Our logits against libllama's on the tiny random models: every architecture, head size, head
// sharing, tied and untied output, rotation and weight type of tests/models/make_tiny.py.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "comparison.h"

namespace turboquant {
namespace {

// One: ggml's threads wait for each other by spinning, which on a machine busy with other tests
// takes minutes.
constexpr int kNumThreads = 1;
constexpr size_t kPrompts[] = {1, 33, 512};

const std::vector<std::string> kF32Models = {"llama-h64-g1-tied",
                                             "llama-h64-g3",
                                             "llama-h80-g4",
                                             "llama-h128-g3-tied",
                                             "llama-h128-g4-wide-heads",
                                             "qwen2-h64-g4",
                                             "qwen2-h80-g3-tied",
                                             "qwen2-h128-g1-large-bias",
                                             "qwen3-h128-g4-tied",
                                             "qwen3-h64-g3",
                                             "qwen3-h80-g1",
                                             "llama-h64-rope-factors",
                                             "llama-h128-rope-factors",
                                             "llama-h64-rope-linear",
                                             "qwen2-h64-rope-linear",
                                             "llama-h64-biases",
                                             "llama-h64-spm",
                                             "llama-h32-smallest"};
const std::vector<std::string> kQuantizedModels = {"llama-h64-f16",  "llama-h64-bf16",
                                                   "llama-h64-q8_0", "llama-h128-q4_0-tied",
                                                   "qwen2-h64-q4_0", "qwen3-h64-q8_0-tied"};

std::string Path(const std::string& model) {
  return fmt::format("{}/{}.gguf", TURBOQUANT_TINY_MODELS, model);
}

std::vector<int32_t> RandomTokens(size_t count, int vocab_size) {
  std::mt19937 random(20);
  std::uniform_int_distribution<int32_t> token(0, vocab_size - 1);
  std::vector<int32_t> tokens(count);
  for (int32_t& t : tokens) t = token(random);
  return tokens;
}

struct Case {
  OracleCache oracle_cache;
  const char* our_cache;
  Bounds bounds;
  bool dequantized = false;  // ours at load, libllama's in a file written for that
};

void CompareModel(const std::string& name, const Case& test) {
  std::string oracle_path = Path(name);
  if (test.dequantized) {
    oracle_path = testing::TempDir() + fmt::format("{}-f32-{}.gguf", name, getpid());
    WriteF32Copy(Path(name), oracle_path);
  }
  LlamaRun llama(oracle_path, test.oracle_cache, /*max_context=*/1024, kNumThreads);
  if (test.dequantized) std::filesystem::remove(oracle_path);
  const WeightMode weights = test.dequantized ? WeightMode::kDequantized : WeightMode::kFile;
  OurRun ours({.model = LoadModel(Path(name), weights),
               .kv_cache_dtype = test.our_cache,
               .num_threads = kNumThreads});
  Comparison comparison(name, test.bounds);
  for (const size_t prompt : kPrompts) {
    const OracleTokens oracle = RunOracle(&llama, RandomTokens(prompt, llama.vocab_size()));
    comparison.Run(oracle, &ours, /*chunk_tokens=*/prompt);
    if (prompt > 1) comparison.Run(oracle, &ours, prompt / 5);
  }
  comparison.ExpectSameTop();
}

class F32Weights : public testing::TestWithParam<std::string> {};
TEST_P(F32Weights, F32CacheEqualsLibllama) {
  CompareModel(GetParam(), {OracleCache::kF32, "f32", kExactBounds});
}
TEST_P(F32Weights, F16CacheIsCloseToLibllama) {
  CompareModel(GetParam(), {OracleCache::kF16, "f16", kHalfBounds});
}

class QuantizedWeights : public testing::TestWithParam<std::string> {};
TEST_P(QuantizedWeights, AreCloseToLibllama) {
  CompareModel(GetParam(), {OracleCache::kF16, "f16", kQuantizedBounds});
}
TEST_P(QuantizedWeights, DequantizedEqualLibllama) {
  CompareModel(GetParam(), {OracleCache::kF32, "f32", kExactBounds, /*dequantized=*/true});
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Tiny, F32Weights, testing::ValuesIn(kF32Models), TestName);
INSTANTIATE_TEST_SUITE_P(Tiny, QuantizedWeights, testing::ValuesIn(kQuantizedModels), TestName);

TEST(TinyModels, EveryOneIsCompared) {
  std::set<std::string> there, compared(kF32Models.begin(), kF32Models.end());
  compared.insert(kQuantizedModels.begin(), kQuantizedModels.end());
  for (const auto& entry : std::filesystem::directory_iterator(TURBOQUANT_TINY_MODELS)) {
    if (entry.path().extension() == ".gguf") there.insert(entry.path().stem());
  }
  EXPECT_EQ(there, compared);
}

// A chunk whose logits nobody wants runs a shorter graph; what it stores must be the same.
TEST(TinyModels, ChunksWithoutLogitsStoreTheSame) {
  const auto model = LoadModel(Path("qwen3-h64-g3"), WeightMode::kFile);
  const std::vector<int32_t> tokens = RandomTokens(200, model->config().vocab_size);
  const std::span<const int32_t> all(tokens);
  OurRun ours({.model = model, .kv_cache_dtype = "f32", .num_threads = kNumThreads});
  std::vector<float> with, without;
  ours.Feed(all.first(150), &with);
  with.clear();
  ours.Feed(all.subspan(150), &with);
  ours.Reset();
  ours.FeedSilently(all.first(150));
  ours.Feed(all.subspan(150), &without);
  EXPECT_EQ(with, without);
}

// Graphs of many shapes, used again after others were built: nothing may depend on what ran before.
TEST(TinyModels, GraphsAreReusedWithoutTrace) {
  const auto model = LoadModel(Path("llama-h64-g3"), WeightMode::kFile);
  const std::vector<int32_t> tokens = RandomTokens(600, model->config().vocab_size);
  const std::span<const int32_t> all(tokens);
  std::vector<std::vector<float>> first, second;
  OurRun ours({.model = model, .kv_cache_dtype = "f32", .num_threads = kNumThreads});
  for (std::vector<std::vector<float>>* results : {&first, &second}) {
    for (size_t rows = 1; rows <= 40; ++rows) {
      ours.Reset();
      ours.Feed(all.first(rows), &results->emplace_back());
      ours.Feed(all.subspan(rows, 1), &results->emplace_back());
    }
  }
  EXPECT_EQ(first, second);
}

TEST(TinyModels, ThreadsDoNotMatter) {
  const auto model = LoadModel(Path("llama-h64-g3"), WeightMode::kFile);
  const std::vector<int32_t> tokens = RandomTokens(100, model->config().vocab_size);
  std::vector<float> one, three;
  OurRun({.model = model, .kv_cache_dtype = "int8", .num_threads = 1}).Feed(tokens, &one);
  OurRun({.model = model, .kv_cache_dtype = "int8", .num_threads = 3}).Feed(tokens, &three);
  EXPECT_EQ(one, three);
}

}  // namespace
}  // namespace turboquant
