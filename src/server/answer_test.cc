#include "server/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace turboquant::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const AnswerHead kChat = {Endpoint::kChat, "chatcmpl-1", "m", 7};
const AnswerHead kCompletion = {Endpoint::kCompletions, "cmpl-1", "m", 7};

RequestOutput Last(FinishReason reason) {
  RequestOutput output = {.text = "b", .finish_reason = reason};
  output.stats.prompt_tokens = 5;
  output.stats.reused_tokens = 2;
  output.stats.generated_tokens = 3;
  return output;
}

TEST(Answer, WholeChat) {
  Answer answer(kChat, false, false);
  EXPECT_EQ(answer.Add({.text = "a"}), "");
  EXPECT_FALSE(answer.done());
  EXPECT_EQ(answer.Add(Last(FinishReason::kStop)), "");
  ASSERT_TRUE(answer.done());
  const Json json = Json::parse(answer.Whole().body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", "ab"}}));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["total_tokens"], 8);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(Answer, StreamedChatEndsWithUsageAndDone) {
  Answer answer(kChat, true, true);
  EXPECT_THAT(answer.FirstEvents(), HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(answer.Add({.text = "a"}), HasSubstr(R"("delta":{"content":"a"})"));
  const std::string end = answer.Add(Last(FinishReason::kLength));
  EXPECT_THAT(end, HasSubstr(R"("delta":{"content":"b"},"logprobs":null,"finish_reason":null)"));
  EXPECT_THAT(end, HasSubstr(R"("delta":{},"logprobs":null,"finish_reason":"length")"));
  EXPECT_THAT(end, HasSubstr(R"("choices":[],"usage":{"prompt_tokens":5)"));
  EXPECT_TRUE(end.ends_with("data: [DONE]\n\n"));
}

TEST(Answer, StreamedCompletionWithoutUsage) {
  Answer answer(kCompletion, true, false);
  EXPECT_EQ(answer.FirstEvents(), "");
  const std::string end = answer.Add(Last(FinishReason::kStop));
  EXPECT_THAT(end, HasSubstr(R"("choices":[{"index":0,"text":"b")"));
  EXPECT_THAT(end, Not(HasSubstr("usage")));
}

TEST(Answer, FaultsAreErrorsAndNoEnd) {
  for (const FinishReason reason : {FinishReason::kError, FinishReason::kCancelled}) {
    Answer stream(kChat, true, true);
    const std::string events = stream.Add(Last(reason));
    EXPECT_THAT(events, HasSubstr(R"(data: {"error":)"));
    EXPECT_THAT(events, Not(HasSubstr("[DONE]")));
    Answer whole(kChat, false, false);
    whole.Add(Last(reason));
    EXPECT_EQ(whole.Whole().status, reason == FinishReason::kError ? 500 : 503);
  }
}

TEST(Answer, BadUtf8BecomesAReplacement) {
  Answer answer(kChat, false, false);
  answer.Add({.text = "\xff"});
  answer.Add(Last(FinishReason::kStop));
  EXPECT_EQ(Json::parse(answer.Whole().body)["choices"][0]["message"]["content"], "\uFFFDb");
}

}  // namespace
}  // namespace turboquant::server
