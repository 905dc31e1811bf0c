// The engine behind its thread: many callers, cancellation, a full queue, the end.
#include "engine/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace turboquant {
namespace {

using ::testing::HasSubstr;

// Gathers the outputs of one request; Wait blocks for the last.
class Collector {
 public:
  EngineService::OnOutput Function() {
    return [this](RequestOutput output) {
      const std::lock_guard lock(mutex_);
      if (output.token) tokens_.push_back(*output.token);
      if (output.finish_reason) last_ = std::move(output);
      changed_.notify_all();
    };
  }
  RequestOutput Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return last_.has_value(); });
    return *last_;
  }
  void WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, count] { return tokens_.size() >= count || last_; });
  }
  std::vector<int32_t> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> tokens_;
  std::optional<RequestOutput> last_;
};

std::unique_ptr<EngineService> MakeService(int max_queued_requests = 100) {
  static const auto model = Model::Load({.path = ENGINE_TEST_MODEL});
  EXPECT_TRUE(model) << model.error().message;
  auto engine = Engine::Create(
      *model, {.cache = {.max_num_seqs = 2, .max_model_len = 2048}, .num_threads = 1});
  EXPECT_TRUE(engine) << engine.error().message;
  return std::make_unique<EngineService>(
      std::move(*engine), EngineServiceOptions{.max_queued_requests = max_queued_requests});
}

Request MakeRequest(int32_t first_token, int max_tokens) {
  return {
      .prompt = {first_token, 5, 6, 7}, .max_tokens = max_tokens, .ignore_end_of_generation = true};
}

TEST(EngineService, CallersOnManyThreadsGetWhatEachGetsAlone) {
  constexpr int kCallers = 6;
  const auto service = MakeService();
  std::vector<std::vector<int32_t>> alone(kCallers), together(kCallers);
  for (int i = 0; i < kCallers; ++i) {
    Collector collector;
    ASSERT_TRUE(service->Submit(MakeRequest(i + 1, 30), collector.Function()));
    EXPECT_EQ(collector.Wait().finish_reason, FinishReason::kLength);
    alone[static_cast<size_t>(i)] = collector.tokens();
  }
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&service, &together, i] {
      Collector collector;
      ASSERT_TRUE(service->Submit(MakeRequest(i + 1, 30), collector.Function()));
      collector.Wait();
      together[static_cast<size_t>(i)] = collector.tokens();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(together, alone);
  EXPECT_EQ(service->num_requests(), 0);
}

TEST(EngineService, OutputsBearTheIdThatSubmitGave) {
  const auto service = MakeService();
  Collector first, second;
  const auto first_id = service->Submit(MakeRequest(1, 5), first.Function());
  const auto second_id = service->Submit(MakeRequest(2, 5), second.Function());
  EXPECT_EQ(first.Wait().id, **first_id);
  EXPECT_EQ(second.Wait().id, **second_id);
}

TEST(EngineService, BadRequestsAreRefusedAtOnce) {
  const auto service = MakeService();
  const auto refused = service->Submit(Request{}, [](RequestOutput) { FAIL(); });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("empty"));
  EXPECT_EQ(service->num_requests(), 0);
}

TEST(EngineService, AFullQueueIsAnAnswer) {
  const auto service = MakeService(/*max_queued_requests=*/1);
  std::vector<Collector> collectors(4);
  std::vector<RequestId> ids;
  for (size_t i = 0; i < 3; ++i) {
    const auto id = service->Submit(MakeRequest(1, 2000), collectors[i].Function());
    ASSERT_TRUE(id && *id) << i;
    ids.push_back(**id);
  }
  const auto one_more = service->Submit(MakeRequest(1, 2000), collectors[3].Function());
  ASSERT_TRUE(one_more);
  EXPECT_FALSE(*one_more);
  for (const RequestId id : ids) service->Cancel(id);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(collectors[i].Wait().finish_reason, FinishReason::kCancelled);
  }
  const auto later = service->Submit(MakeRequest(1, 2), collectors[3].Function());
  ASSERT_TRUE(later && *later);
  EXPECT_EQ(collectors[3].Wait().finish_reason, FinishReason::kLength);
}

TEST(EngineService, AContinuationComputesOnlyTheRest) {
  const auto service = MakeService();
  Collector first, second;
  ASSERT_TRUE(service->Submit(MakeRequest(1, 100), first.Function()));
  EXPECT_EQ(first.Wait().stats.reused_tokens, 0);
  Request next = MakeRequest(1, 10);
  for (const int32_t token : first.tokens()) next.prompt.push_back(token);
  next.prompt.push_back(9);
  ASSERT_TRUE(service->Submit(next, second.Function()));
  EXPECT_EQ(second.Wait().stats.reused_tokens, 4 + 100 - 1);
  Collector unshared;
  ASSERT_TRUE(MakeService()->Submit(next, [](RequestOutput) {}));  // ended with its service
  const auto fresh = MakeService();
  ASSERT_TRUE(fresh->Submit(next, unshared.Function()));
  EXPECT_EQ(unshared.Wait().stats.reused_tokens, 0);
  EXPECT_EQ(unshared.tokens(), second.tokens());
}

TEST(EngineService, StopCancelsAndRefuses) {
  const auto service = MakeService();
  Collector running, waiting, late;
  ASSERT_TRUE(service->Submit(MakeRequest(1, 2000), running.Function()));
  running.WaitForTokens(1);
  ASSERT_TRUE(service->Submit(MakeRequest(2, 2000), waiting.Function()));
  service->Stop();
  EXPECT_EQ(running.Wait().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(waiting.Wait().finish_reason, FinishReason::kCancelled);
  const auto refused = service->Submit(MakeRequest(3, 1), late.Function());
  ASSERT_TRUE(refused);
  EXPECT_FALSE(*refused);
  EXPECT_EQ(service->stats().num_running, 0);
}

}  // namespace
}  // namespace turboquant
