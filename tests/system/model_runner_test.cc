// ModelRunner on a tiny model: which logits come back, and what it refuses.
#include "engine/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "planner/cache_plan.h"

namespace turboquant {
namespace {

using Logits = StepInput::Logits;

std::shared_ptr<const Model> TestModel() {
  static const auto model = [] {
    auto loaded = Model::Load({.path = ENGINE_TEST_MODEL});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded.value_or(nullptr);
  }();
  return model;
}

ModelRunnerOptions Options() {
  auto plan =
      PlanCache(TestModel()->config(),
                {.kv_cache_dtype = "f32", .block_size = 16, .max_num_seqs = 3, .max_model_len = 64},
                {.usable_bytes = uint64_t{1} << 33});
  EXPECT_TRUE(plan) << plan.error().message;
  return {.cache = plan->config, .max_batch_tokens = 64, .max_context = 64};
}

std::unique_ptr<ModelRunner> MakeRunner() {
  auto runner = ModelRunner::Create(TestModel(), Options());
  EXPECT_TRUE(runner) << runner.error().message;
  return std::move(*runner);
}

// The tokens of a new sequence in a step.
StepInput Input(ModelRunner* runner, const std::vector<int32_t>& tokens, Logits logits) {
  const SequenceId id = *runner->cache().AddSequence();
  EXPECT_TRUE(runner->cache().AllocateSlots(id, static_cast<int>(tokens.size())));
  return {.sequence = id, .tokens = tokens, .logits = logits};
}

void ExpectClose(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-3) << i;
}

TEST(ModelRunner, LogitsComeInTheOrderOfTheInputs) {
  const std::vector<int32_t> a = {5, 6, 7}, b = {8, 9}, c = {10, 11, 12, 13};
  auto runner = MakeRunner();
  const auto vocab_size = static_cast<size_t>(TestModel()->config().vocab_size);
  const std::vector<StepInput> inputs = {Input(runner.get(), a, Logits::kAll),
                                         Input(runner.get(), b, Logits::kNone),
                                         Input(runner.get(), c, Logits::kLast)};
  const std::span<const float> together = runner->Execute(inputs);
  ASSERT_EQ(together.size(), 4 * vocab_size);
  EXPECT_EQ(runner->cache().NumTokens(inputs[1].sequence), 2);

  auto alone = MakeRunner();
  const StepInput all = Input(alone.get(), a, Logits::kAll);
  ExpectClose(together.first(3 * vocab_size), alone->Execute({&all, 1}));
  const StepInput last = Input(alone.get(), c, Logits::kLast);
  ExpectClose(together.subspan(3 * vocab_size), alone->Execute({&last, 1}));
}

TEST(ModelRunner, WithoutLogitsTheCacheIsFilledAllTheSame) {
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9}, next = {10};
  auto runner = MakeRunner();
  StepInput input = Input(runner.get(), prompt, Logits::kNone);
  EXPECT_TRUE(runner->Execute({&input, 1}).empty());
  ASSERT_TRUE(runner->cache().AllocateSlots(input.sequence, 1));
  input.tokens = next;
  input.logits = Logits::kLast;
  const std::span<const float> after = runner->Execute({&input, 1});

  auto at_once = MakeRunner();
  const std::vector<int32_t> tokens = {5, 6, 7, 8, 9, 10};
  const StepInput all = Input(at_once.get(), tokens, Logits::kLast);
  ExpectClose(after, at_once->Execute({&all, 1}));
  EXPECT_GT(runner->buffer_bytes(), 0u);
}

// The last layer attends to nothing where no logits are wanted; its copies of recent blocks are
// kept all the same. Everything is closer to the f32 cache with them.
TEST(ModelRunner, WithoutLogitsRecentBlocksAreKeptAllTheSame) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 300; ++i) tokens.push_back(5 + i * 7 % 200);
  const auto logits = [&](const char* format, int recent, Logits of_chunks) {
    auto plan = PlanCache(TestModel()->config(),
                          {.kv_cache_dtype = format,
                           .block_size = 32,
                           .num_recent_tokens = recent,
                           .max_model_len = 512},
                          {.usable_bytes = uint64_t{1} << 33});
    EXPECT_TRUE(plan) << plan.error().message;
    auto runner = ModelRunner::Create(
        TestModel(), {.cache = plan->config, .max_batch_tokens = 64, .max_context = 512});
    EXPECT_TRUE(runner) << runner.error().message;
    StepInput input = {.sequence = *(*runner)->cache().AddSequence(), .tokens = {}, .logits = {}};
    std::vector<float> last;
    for (size_t at = 0; at < tokens.size(); at += 60) {
      input.tokens = std::span(tokens).subspan(at, 60);
      input.logits = at + 60 < tokens.size() ? of_chunks : Logits::kLast;
      EXPECT_TRUE((*runner)->cache().AllocateSlots(input.sequence, 60));
      const std::span<const float> found = (*runner)->Execute({&input, 1});
      last.assign(found.begin(), found.end());
    }
    return last;
  };
  const std::vector<float> with = logits("int2", 256, Logits::kLast);
  ExpectClose(logits("int2", 256, Logits::kNone), with);
  const std::vector<float> exact = logits("f32", 0, Logits::kNone);
  const auto error = [&](const std::vector<float>& found) {
    double sum = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      sum += std::pow(static_cast<double>(found[i] - exact[i]), 2);
    }
    return sum;
  };
  EXPECT_LT(error(with), 0.1 * error(logits("int2", 0, Logits::kNone)));
}

TEST(ModelRunner, RefusesWhatDoesNotFit) {
  const auto message = [](ModelRunnerOptions options) {
    const auto runner = ModelRunner::Create(TestModel(), std::move(options));
    return runner ? "accepted" : runner.error().message;
  };
  EXPECT_EQ(message(Options()), "accepted");
  ModelRunnerOptions options = Options();
  options.cache.layers.pop_back();
  EXPECT_THAT(message(options), ::testing::HasSubstr("does not fit a model of"));
  options = Options();
  options.cache.layers[0].num_kv_heads += 1;
  EXPECT_THAT(message(options), ::testing::HasSubstr("does not fit a model of"));
  options = Options();
  options.max_batch_tokens = 0;
  EXPECT_THAT(message(options), ::testing::HasSubstr("0 tokens per step"));
  options = Options();
  options.max_context = 0;
  EXPECT_THAT(message(options), ::testing::HasSubstr("context of 0 tokens"));
  options = Options();
  options.num_threads = 513;
  EXPECT_THAT(message(options), ::testing::HasSubstr("513 threads"));
}

#ifndef TURBOQUANT_SANITIZED  // whose shadow memory grows as well
size_t ResidentBytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Between 2,048 and 5,120 tokens the process grows by their blocks and by nothing else.
TEST(ModelRunner, MemoryGrowsByBlocksOnly) {
  for (const char* dtype : {"f16", "int8"}) {
    auto plan = PlanCache(TestModel()->config(), {.kv_cache_dtype = dtype, .max_model_len = 5120},
                          {.usable_bytes = uint64_t{1} << 33});
    ASSERT_TRUE(plan) << plan.error().message;
    auto runner = ModelRunner::Create(TestModel(), {.cache = plan->config, .max_context = 5120});
    ASSERT_TRUE(runner) << runner.error().message;
    const SequenceId id = *(*runner)->cache().AddSequence();
    const std::vector<int32_t> tokens(512, 7);
    const auto feed = [&](int until) {
      while ((*runner)->cache().NumTokens(id) < until) {
        ASSERT_TRUE((*runner)->cache().AllocateSlots(id, 512));
        const StepInput input = {.sequence = id, .tokens = tokens, .logits = Logits::kNone};
        (*runner)->Execute({&input, 1});
      }
    };
    feed(2048);
    const size_t before = ResidentBytes(), buffers = (*runner)->buffer_bytes();
    feed(5120);
    const double growth = static_cast<double>(ResidentBytes() - before);
    const double blocks = plan->bytes_per_token * (5120 - 2048);
    EXPECT_GT(growth, 0.97 * blocks) << dtype;
    EXPECT_LT(growth, 1.03 * blocks + 128 * 1024) << dtype;
    EXPECT_EQ((*runner)->buffer_bytes(), buffers) << dtype;
  }
}
#endif

}  // namespace
}  // namespace turboquant
