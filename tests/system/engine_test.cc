// The engine on a real model: whatever the batch, the chunks, the threads, preemptions and reuse, a
// request gets the same tokens. The weights are F32 and so is the cache where batches of one and of
// several rows are compared: ggml's F32 matrix product sums a single row in another order than
// several, and the 1e-7 that this makes is enough to flip the rounding of quantized activations and
// of stored codes (docs/design/engine.md).
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

using ::testing::SizeIs;

constexpr int kNewTokens = ENGINE_TEST_NEW_TOKENS;  // at least 40, for preemptions to happen
constexpr int kLongPrompt = 530;                    // more than a step takes

std::shared_ptr<const Model> TestModel() {
  static const auto model = [] {
    auto loaded = Model::Load({.path = ENGINE_TEST_MODEL, .weights = WeightMode::kDequantized});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded.value_or(nullptr);
  }();
  return model;
}

// num_tokens tokens of an English text, from `first` on.
std::vector<int32_t> Prompt(size_t first, size_t num_tokens) {
  static const std::vector<int32_t> tokens = [] {
    const auto text = ReadFile(TURBOQUANT_TEXTS_DIR "/novel.txt");
    EXPECT_TRUE(text) << text.error().message;
    return TestModel()->tokenizer().Encode(text->substr(0, 20000), false, false);
  }();
  EXPECT_GE(tokens.size(), first + num_tokens);
  const auto begin = tokens.begin() + static_cast<ptrdiff_t>(first);
  return {begin, begin + static_cast<ptrdiff_t>(num_tokens)};
}

EngineOptions Options(const std::string& kv_cache_dtype = "f32") {
  // One thread: on a busy machine two of them wait for each other longer than they compute.
  return {.cache = {.kv_cache_dtype = kv_cache_dtype,
                    .block_size = 16,
                    .max_num_seqs = 4,
                    .max_model_len = 1024},
          .num_threads = 1};
}

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  auto engine = Engine::Create(TestModel(), options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::string text, error;
  std::optional<FinishReason> finish_reason;
  RequestStats stats;
};

// Runs until all requests have ended.
std::map<RequestId, Answer> Drain(Engine* engine) {
  std::map<RequestId, Answer> answers;
  while (engine->HasWork()) {
    for (RequestOutput& out : engine->Step()) {
      Answer& answer = answers[out.id];
      EXPECT_FALSE(answer.finish_reason) << "output after the last one";
      if (out.token) answer.tokens.push_back(*out.token);
      answer.text += out.text;
      answer.error = out.error;
      answer.finish_reason = out.finish_reason;
      answer.stats = out.stats;
    }
  }
  return answers;
}

Request Greedy(std::vector<int32_t> prompt, int max_tokens = kNewTokens) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens, .ignore_end_of_generation = true};
}

Answer Generate(Engine* engine, const Request& request) {
  const auto id = engine->AddRequest(request);
  EXPECT_TRUE(id) << id.error().message;
  return Drain(engine).at(*id);
}

TEST(EngineSystem, BatchedRequestsGetTheTokensTheyGetAlone) {
  const std::vector<Request> requests = {Greedy(Prompt(0, 75)), Greedy(Prompt(300, 5)),
                                         Greedy(Prompt(500, 40))};
  auto engine = MakeEngine(Options());
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(Generate(engine.get(), request));
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(*engine->AddRequest(request));
  const auto batched = Drain(engine.get());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_THAT(alone[i].tokens, SizeIs(kNewTokens));
    EXPECT_EQ(batched.at(ids[i]).tokens, alone[i].tokens) << "request " << i;
    EXPECT_EQ(batched.at(ids[i]).text, alone[i].text);
    EXPECT_EQ(batched.at(ids[i]).finish_reason, FinishReason::kLength);
  }
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
}

TEST(EngineSystem, PreemptedRequestsResumeWithTheSameTokens) {
  const std::vector<Request> requests = {Greedy(Prompt(0, 40)), Greedy(Prompt(100, 40)),
                                         Greedy(Prompt(200, 40))};
  auto roomy = MakeEngine(Options());
  EngineOptions options = Options();
  // Room for one whole sequence and one block.
  const int length = 40 + kNewTokens;
  const int num_blocks = length / 16 + 1;
  options.cache.max_model_len = length;
  const CachePlan& plan = roomy->plan();
  options.cache.kv_cache_memory =
      plan.sequence_bytes + static_cast<uint64_t>(num_blocks) * plan.block_bytes;
  auto tight = MakeEngine(options);
  ASSERT_EQ(tight->plan().config.num_blocks, num_blocks);
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(*tight->AddRequest(request));
  const auto answers = Drain(tight.get());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers.at(ids[i]).tokens, Generate(roomy.get(), requests[i]).tokens)
        << "request " << i;
  }
  EXPECT_GT(tight->stats().preemptions, 0);
  int preemptions = 0;
  for (const RequestId id : ids) preemptions += answers.at(id).stats.preemptions;
  EXPECT_EQ(preemptions, tight->stats().preemptions);
  EXPECT_EQ(tight->stats().kv.num_free_blocks, num_blocks);
}

// Greedy tokens after a prompt that is computed in chunks.
Answer GenerateInChunks(int chunk, const std::string& kv_cache_dtype) {
  EngineOptions options = Options(kv_cache_dtype);
  options.max_batch_tokens = chunk;
  options.cache.max_num_seqs = 1;
  auto engine = MakeEngine(options);
  Answer answer = Generate(engine.get(), Greedy(Prompt(0, kLongPrompt), 12));
  EXPECT_EQ(engine->stats().steps, (kLongPrompt + chunk - 1) / chunk + 11);
  EXPECT_EQ(engine->stats().computed_tokens, kLongPrompt + 11);
  return answer;
}

TEST(EngineSystem, ChunkSizeDoesNotMatter) {
  const Answer expected = GenerateInChunks(512, "f32");
  EXPECT_THAT(expected.tokens, SizeIs(12));
  for (const int chunk : {100, 1}) {
    const Answer answer = GenerateInChunks(chunk, "f32");
    EXPECT_EQ(answer.tokens, expected.tokens) << "chunks of " << chunk;
    EXPECT_EQ(answer.text, expected.text);
  }
}

TEST(EngineSystem, ChunkSizeDoesNotMatterToAQuantizedCache) {
  EXPECT_EQ(GenerateInChunks(100, "int8").tokens, GenerateInChunks(512, "int8").tokens);
  EXPECT_EQ(GenerateInChunks(100, "int4").tokens, GenerateInChunks(512, "int4").tokens);
}

TEST(EngineSystem, ThreadsDoNotMatter) {
  EngineOptions options = Options("int8");
  const Request request = Greedy(Prompt(0, 100), 12);
  const Answer one = Generate(MakeEngine(options).get(), request);
  options.num_threads = 2;
  EXPECT_EQ(Generate(MakeEngine(options).get(), request).tokens, one.tokens);
}

TEST(EngineSystem, SeededRunsReproduce) {
  auto engine = MakeEngine(Options());
  Request request = Greedy(Prompt(0, 30));
  request.sampling = {.seed = 7, .temperature = 1.2f, .top_p = 0.95f, .repetition_penalty = 1.1f};
  const Answer first = Generate(engine.get(), request);
  EXPECT_EQ(Generate(engine.get(), request).tokens, first.tokens);
  // Beside another request, too.
  ASSERT_TRUE(engine->AddRequest(Greedy(Prompt(200, 60))));
  EXPECT_EQ(Generate(engine.get(), request).tokens, first.tokens);
  request.sampling.seed = 8;
  EXPECT_NE(Generate(engine.get(), request).tokens, first.tokens);
}

TEST(EngineSystem, AKeptCacheGivesTheSameTokensFaster) {
  auto engine = MakeEngine(Options());
  Request first = Greedy(Prompt(0, 100), 10);
  first.keep_cache = true;
  const auto id = engine->AddRequest(first);
  const Answer answer = Drain(engine.get()).at(*id);
  EXPECT_EQ(engine->stats().num_kept, 1);

  std::vector<int32_t> prompt = first.prompt;
  prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
  const std::vector<int32_t> more = Prompt(300, 20);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const Answer from_scratch = Generate(engine.get(), Greedy(prompt));
  Request second = Greedy(prompt);
  second.continue_from = *id;
  const int64_t computed = engine->stats().computed_tokens;
  const Answer continued = Generate(engine.get(), second);
  EXPECT_EQ(continued.stats.reused_tokens, 109);
  EXPECT_EQ(engine->stats().computed_tokens - computed, 130 - 109 + kNewTokens - 1);
  EXPECT_EQ(continued.tokens, from_scratch.tokens);
  EXPECT_EQ(from_scratch.stats.reused_tokens, 0);
  EXPECT_EQ(engine->stats().num_kept, 0);
  EXPECT_EQ(engine->stats().kv.num_sequences, 0);
}

TEST(EngineSystem, AnotherPromptThanTheKeptOneIsComputedInFull) {
  auto engine = MakeEngine(Options());
  Request first = Greedy(Prompt(0, 50), 4);
  first.keep_cache = true;
  const auto id = engine->AddRequest(first);
  Drain(engine.get());
  Request other = Greedy(Prompt(1, 80), 4);
  const Answer expected = Generate(engine.get(), other);
  other.continue_from = *id;
  const Answer answer = Generate(engine.get(), other);
  EXPECT_EQ(answer.stats.reused_tokens, 0);
  EXPECT_EQ(answer.tokens, expected.tokens);
  EXPECT_EQ(engine->stats().num_kept, 1);
  engine->Release(*id);
  EXPECT_EQ(engine->stats().num_kept, 0);
  EXPECT_EQ(engine->stats().kv.num_free_blocks, engine->stats().kv.num_blocks);
}

TEST(EngineSystem, StopFlagEndsEverythingBeforeTheNextStep) {
  std::atomic<bool> stop = false;
  EngineOptions options = Options();
  options.stop = &stop;
  options.cache.max_num_seqs = 1;
  auto engine = MakeEngine(options);
  const RequestId running = *engine->AddRequest(Greedy(Prompt(0, 20)));
  const RequestId waiting = *engine->AddRequest(Greedy(Prompt(50, 20)));
  for (int i = 0; i < 3; ++i) engine->Step();
  stop = true;
  const int64_t steps = engine->stats().steps;
  const std::vector<RequestOutput> outputs = engine->Step();
  EXPECT_EQ(engine->stats().steps, steps);
  ASSERT_THAT(outputs, SizeIs(2));
  EXPECT_EQ(outputs[0].id, running);
  EXPECT_EQ(outputs[0].stats.generated_tokens, 3);
  EXPECT_EQ(outputs[1].id, waiting);
  for (const RequestOutput& out : outputs) EXPECT_EQ(out.finish_reason, FinishReason::kCancelled);
  EXPECT_FALSE(engine->HasWork());
  EXPECT_EQ(engine->stats().kv.num_sequences, 0);
}

TEST(EngineSystem, CancelLeavesTheOthersAlone) {
  auto engine = MakeEngine(Options());
  const Request request = Greedy(Prompt(0, 20));
  const Answer expected = Generate(engine.get(), request);
  const RequestId kept = *engine->AddRequest(request);
  const RequestId cancelled = *engine->AddRequest(Greedy(Prompt(50, 20)));
  engine->Step();
  engine->Cancel(cancelled);
  engine->Cancel(cancelled);
  engine->Cancel(RequestId{12345});
  const auto answers = Drain(engine.get());
  EXPECT_EQ(answers.at(cancelled).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(answers.at(kept).finish_reason, FinishReason::kLength);
  EXPECT_EQ(answers.at(kept).stats.generated_tokens, kNewTokens);
  EXPECT_EQ(answers.at(kept).tokens.back(), expected.tokens.back());
}

TEST(EngineSystem, AFullContextEndsTheRequest) {
  EngineOptions options = Options();
  options.cache.max_model_len = 40;
  auto engine = MakeEngine(options);
  const Answer answer = Generate(engine.get(), Greedy(Prompt(0, 30), 0));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_THAT(answer.tokens, SizeIs(10));
  EXPECT_EQ(answer.stats.kv_tokens, 39);
}

TEST(EngineSystem, AStopStringEndsTheText) {
  auto engine = MakeEngine(Options());
  Request request = Greedy(Prompt(0, 60));
  const Answer full = Generate(engine.get(), request);
  ASSERT_GT(full.text.size(), 8u);
  request.stop = {"no such text", full.text.substr(4, 3)};
  const Answer answer = Generate(engine.get(), request);
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  EXPECT_EQ(answer.text, full.text.substr(0, full.text.find(request.stop[1])));
  EXPECT_LT(answer.tokens.size(), full.tokens.size());
}

TEST(EngineSystem, StatsAreTheAllocatorsBytes) {
  auto engine = MakeEngine(Options("int8"));
  const Answer answer = Generate(engine.get(), Greedy(Prompt(0, 100), 30));
  const RequestStats& stats = answer.stats;
  const CachePlan& plan = engine->plan();
  EXPECT_EQ(stats.prompt_tokens, 100);
  EXPECT_EQ(stats.generated_tokens, 30);
  EXPECT_EQ(stats.kv_tokens, 129);
  EXPECT_EQ(stats.kv_bytes,
            129 / 16 * plan.block_bytes + engine->runner().cache().BytesPerSequence());
  EXPECT_EQ(stats.kv_bytes_f16, 129 * plan.f16_bytes_per_token);
  EXPECT_DOUBLE_EQ(stats.bits_per_value, plan.bits_per_value);
  EXPECT_GT(stats.effective_bits, stats.bits_per_value);
  EXPECT_GT(stats.ttft_seconds, 0);
  EXPECT_GE(stats.ttft_seconds, stats.prefill_seconds);
  EXPECT_GT(stats.PrefillTokensPerSecond(), 0);
  EXPECT_GT(stats.DecodeTokensPerSecond(), 0);
  const EngineStats total = engine->stats();
  EXPECT_EQ(total.generated_tokens, 30);
  EXPECT_EQ(total.computed_tokens, 129);
  EXPECT_EQ(total.kv.block_bytes_reserved, plan.pool_bytes);
  EXPECT_EQ(total.kv.block_bytes_committed, 8 * plan.block_bytes);
}

TEST(EngineSystem, RefusesBadRequests) {
  EngineOptions options = Options();
  options.cache.max_model_len = 64;
  auto engine = MakeEngine(options);
  const auto message = [&](Request request) {
    const auto id = engine->AddRequest(std::move(request));
    return id ? "accepted" : id.error().message;
  };
  EXPECT_EQ(message(Greedy({})), "the prompt is empty");
  EXPECT_THAT(message(Greedy(Prompt(0, 64))), ::testing::HasSubstr("64 tokens; the context of 64"));
  EXPECT_EQ(message(Greedy(Prompt(0, 63))), "accepted");
  EXPECT_THAT(message(Greedy({-1})), ::testing::HasSubstr("token -1"));
  EXPECT_THAT(message(Greedy({TestModel()->config().vocab_size})),
              ::testing::HasSubstr("in the prompt"));
  EXPECT_THAT(message(Greedy({1}, -1)), ::testing::HasSubstr("-1 tokens"));
  Request request = Greedy({1});
  request.stop = {""};
  EXPECT_EQ(message(request), "a stop string is empty");
  request = Greedy({1});
  request.sampling.top_p = 2;
  EXPECT_THAT(message(request), ::testing::HasSubstr("top-p"));
  Drain(engine.get());
}

TEST(EngineSystem, RefusesBadOptions) {
  const auto message = [](EngineOptions options) {
    const auto engine = Engine::Create(TestModel(), std::move(options));
    return engine ? "accepted" : engine.error().message;
  };
  EngineOptions options = Options();
  options.max_batch_tokens = 3;
  EXPECT_THAT(message(options), ::testing::HasSubstr("fewer than 4 sequences"));
  options = Options();
  options.num_threads = -1;
  EXPECT_THAT(message(options), ::testing::HasSubstr("-1 threads"));
  options = Options();
  options.isa = "avx9";
  EXPECT_THAT(message(options), ::testing::HasSubstr("avx9"));
  options = Options();
  options.cache.max_model_len = 100000000;
  EXPECT_THAT(message(options), ::testing::HasSubstr("a context of 100000000 tokens needs"));
}

}  // namespace
}  // namespace turboquant
