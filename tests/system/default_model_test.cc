// The default model as it is served: Q4_1 weights and an int8 cache answer a question.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

TEST(DefaultModel, Answers) {
  auto model = Model::Load({.path = TURBOQUANT_DEFAULT_MODEL});
  ASSERT_TRUE(model) << model.error().message;
  const ChatMessage message = {"user", "What is the capital of France?"};
  const auto prompt = (*model)->tokenizer().ApplyChatTemplate({&message, 1}, true);
  ASSERT_TRUE(prompt) << prompt.error().message;
  auto engine = Engine::Create(*model, {.cache = {.max_model_len = 512}, .num_threads = 1});
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_TRUE((*engine)->AddRequest(
      {.prompt = (*model)->tokenizer().Encode(*prompt, true, true), .max_tokens = 30}));
  std::string text;
  RequestOutput last;
  while ((*engine)->HasWork()) {
    for (RequestOutput& out : (*engine)->Step()) {
      text += out.text;
      last = std::move(out);
    }
  }
  EXPECT_THAT(text, ::testing::HasSubstr("Paris"));
  EXPECT_EQ(last.finish_reason, FinishReason::kStop);
  const std::vector<std::string> lines = (*engine)->Describe();
  EXPECT_THAT(lines[0], ::testing::HasSubstr("30 layers, 9 heads and 3 KV heads of 64"));
  EXPECT_THAT(lines[2], ::testing::HasSubstr("8.25 bits per value"));
}

}  // namespace
}  // namespace turboquant
