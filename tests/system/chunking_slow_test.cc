// A text scored in one pass, in chunks, alone and beside others, on one and two threads: the
// next-token distributions agree. Weights are F32: with quantized ones ggml rounds the activations
// to 8 bits, and the 1e-7 by which its products of one and of several rows differ flips roundings
// (docs/design/engine.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "engine/cache_plan.h"
#include "engine/model_runner.h"
#include "eval/divergence.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

constexpr int kNumTokens = 1500;
constexpr double kMostKl = 1e-5;  // mean, nats

struct Pass {
  int chunk = kNumTokens;
  int num_threads = 1;
  bool beside_others = false;  // three sequences that feed 1, 37 and 200 tokens per step
};

class Chunking : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    auto model =
        Model::Load({.path = TURBOQUANT_DEFAULT_MODEL, .weights = WeightMode::kDequantized});
    ASSERT_TRUE(model) << model.error().message;
    const auto text = ReadFile(TURBOQUANT_TEXTS_DIR "/novel.txt");
    ASSERT_TRUE(text) << text.error().message;
    model_ = new std::shared_ptr<const Model>(*model);
    tokens_ = new std::vector<int32_t>((*model)->tokenizer().Encode(*text, true, false));
    ASSERT_GT(tokens_->size(), size_t{4 * kNumTokens});
  }
  static void TearDownTestSuite() {
    delete model_;
    delete tokens_;
  }

  static std::span<const int32_t> Tokens(size_t from, size_t count) {
    return std::span(*tokens_).subspan(from, count);
  }

  static std::unique_ptr<ModelRunner> MakeRunner(const Pass& pass) {
    auto plan = PlanCache((*model_)->config(),
                          {.kv_cache_dtype = GetParam(), .max_num_seqs = 4, .max_model_len = 2048},
                          {.usable_bytes = uint64_t{1} << 34});
    EXPECT_TRUE(plan) << plan.error().message;
    auto runner = ModelRunner::Create(*model_, {.cache = plan->config,
                                                .num_threads = pass.num_threads,
                                                .max_batch_tokens = kNumTokens + 238,
                                                .max_context = 2048});
    EXPECT_TRUE(runner) << runner.error().message;
    return std::move(*runner);
  }

  // The inputs of one step: the scored text last, so that its logits are all that Execute returns.
  static std::vector<StepInput> Step(ModelRunner* runner, const std::vector<SequenceId>& others,
                                     SequenceId scored, std::span<const int32_t> chunk) {
    std::vector<StepInput> inputs;
    const size_t counts[] = {1, 37, 200};
    for (size_t i = 0; i < others.size(); ++i) {
      const auto held = static_cast<size_t>(runner->cache().NumTokens(others[i]));
      const size_t count = std::min(counts[i], size_t{2048} - held);
      if (count == 0) continue;
      inputs.push_back(
          {others[i], Tokens(kNumTokens * (i + 1) / 2 + held, count), StepInput::Logits::kNone});
    }
    inputs.push_back({scored, chunk, StepInput::Logits::kAll});
    for (const StepInput& input : inputs) {
      CHECK(runner->cache().AllocateSlots(input.sequence, static_cast<int>(input.tokens.size())));
    }
    return inputs;
  }

  // Logits of every position: [kNumTokens][vocab_size].
  static std::vector<float> Score(const Pass& pass) {
    auto runner = MakeRunner(pass);
    std::vector<SequenceId> others;
    for (int i = 0; pass.beside_others && i < 3; ++i)
      others.push_back(*runner->cache().AddSequence());
    const SequenceId scored = *runner->cache().AddSequence();
    std::vector<float> logits;
    for (int from = 0; from < kNumTokens; from += pass.chunk) {
      const int count = std::min(pass.chunk, kNumTokens - from);
      const auto inputs = Step(runner.get(), others, scored,
                               Tokens(static_cast<size_t>(from), static_cast<size_t>(count)));
      const std::span<const float> rows = runner->Execute(inputs);
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return logits;
  }

  static DivergenceSummary Compare(std::span<const float> expected, std::span<const float> got) {
    EXPECT_EQ(expected.size(), got.size());
    const size_t vocab_size = expected.size() / kNumTokens;
    std::vector<TokenDivergence> tokens;
    for (size_t i = 0; i < kNumTokens; ++i) {
      tokens.push_back(CompareLogits(expected.subspan(i * vocab_size, vocab_size),
                                     got.subspan(i * vocab_size, vocab_size), (*tokens_)[i + 1]));
    }
    return Summarize(tokens);
  }

  static std::shared_ptr<const Model>* model_;
  static std::vector<int32_t>* tokens_;
};
std::shared_ptr<const Model>* Chunking::model_ = nullptr;
std::vector<int32_t>* Chunking::tokens_ = nullptr;

TEST_P(Chunking, EveryCutGivesTheSameDistributions) {
  const std::vector<float> expected = Score({});
  for (const Pass& pass :
       {Pass{kNumTokens, 2, false}, Pass{512, 1, false}, Pass{512, 2, true}, Pass{100, 1, true},
        Pass{100, 2, false}, Pass{1, 1, false}, Pass{1, 2, true}}) {
    const DivergenceSummary summary = Compare(expected, Score(pass));
    const std::string what = fmt::format(
        "{}: chunks of {}, {} threads, {}: KL mean {:.2g}, largest {:.2g}, top-1 {:.5f}",
        GetParam(), pass.chunk, pass.num_threads,
        pass.beside_others ? "beside three others" : "alone", summary.kl_mean, summary.kl_max,
        summary.top1_agreement);
    fmt::print("{}\n", what);
    EXPECT_LE(summary.kl_mean, kMostKl) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Chunking, ::testing::Values("int8"));

}  // namespace
}  // namespace turboquant
