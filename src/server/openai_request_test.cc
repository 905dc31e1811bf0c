#include "server/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace turboquant::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ApiResult<GenerationCall> Chat(const std::string& fields) {
  return ParseGenerationCall(Endpoint::kChat,
                             R"({"messages": [{"role": "user", "content": "hi"}])" + fields + "}");
}

ApiResult<GenerationCall> Completion(const std::string& prompt, const std::string& fields = "") {
  return ParseGenerationCall(Endpoint::kCompletions, R"({"prompt": )" + prompt + fields + "}");
}

// The field that a call is refused for.
std::string Refused(const ApiResult<GenerationCall>& call) {
  return call ? "accepted" : call.error().param;
}

TEST(OpenAiRequest, DefaultsAreOpenAis) {
  const auto chat = Chat("");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->request.sampling.temperature, 1);
  EXPECT_EQ(chat->request.sampling.top_p, 1);
  EXPECT_EQ(chat->request.max_tokens, 0) << "until the context is full";
  EXPECT_FALSE(chat->stream);
  const auto completion = Completion("\"Once\"");
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->request.max_tokens, 16);
}

TEST(OpenAiRequest, FieldsArriveWhereTheyBelong) {
  const auto good = Chat(
      R"(, "model": "m", "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": -2,
         "max_completion_tokens": 9, "max_tokens": 3, "stop": ["a", "b"], "repetition_penalty": 1.5,
         "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true})");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->model, "m");
  EXPECT_EQ(good->request.sampling.temperature, 0.5f);
  EXPECT_EQ(good->request.sampling.top_p, 0.25f);
  EXPECT_EQ(good->request.sampling.top_k, 7);
  EXPECT_EQ(good->request.sampling.min_p, 0.125f);
  EXPECT_EQ(good->request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(good->request.sampling.seed, static_cast<uint64_t>(-2));
  EXPECT_EQ(good->request.max_tokens, 9);
  EXPECT_THAT(good->request.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(good->request.ignore_end_of_generation);
  EXPECT_TRUE(good->stream);
  EXPECT_TRUE(good->include_usage);
}

TEST(OpenAiRequest, MessagesAreTextsOrPartsOfText) {
  const auto call = ParseGenerationCall(Endpoint::kChat, R"({"messages": [
      {"role": "developer", "content": "short"}, {"role": "assistant", "content": null},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_THAT(std::get<ChatMessages>(call->prompt),
              ElementsAre(ChatMessage{"system", "short"}, ChatMessage{"assistant", ""},
                          ChatMessage{"user", "ab"}));
}

TEST(OpenAiRequest, PromptsAreTextsOrTokens) {
  EXPECT_EQ(std::get<std::string>(Completion("\"x\"")->prompt), "x");
  EXPECT_EQ(std::get<std::string>(Completion("[\"x\"]")->prompt), "x");
  EXPECT_THAT(std::get<TokenIds>(Completion("[1, 2]")->prompt), ElementsAre(1, 2));
  EXPECT_THAT(std::get<TokenIds>(Completion("[[1, 2]]")->prompt), ElementsAre(1, 2));
  for (const char* bad : {"null", "3", "[]", "{}", "[-1]", "[1.5]", "[4294967296]", "[1, \"a\"]",
                          "[\"a\", \"b\"]", "[[1], [2]]", "[{}]"}) {
    EXPECT_EQ(Refused(Completion(bad)), "prompt") << bad;
  }
}

TEST(OpenAiRequest, WhatCannotBeHonouredIsRefusedByName) {
  for (const char* name : {"n", "logprobs", "logit_bias", "frequency_penalty", "tools",
                           "response_format", "guided_json", "min_tokens", "suffix", "echo"}) {
    const std::string value = std::string(name) == "n"            ? "2"
                              : std::string(name) == "logit_bias" ? R"({"1": 2})"
                                                                  : "[1]";
    const auto call = Chat(", \"" + std::string(name) + "\": " + value);
    EXPECT_EQ(Refused(call), name);
    if (!call) EXPECT_EQ(call.error().code, "unsupported_parameter");
  }
}

TEST(OpenAiRequest, WhatAsksForNothingIsTaken) {
  const auto call = Chat(
      R"(, "n": 1, "logprobs": false, "logit_bias": {}, "frequency_penalty": 0.0, "tools": [],
         "response_format": {"type": "text"}, "presence_penalty": null, "suffix": "",
         "tool_choice": "none", "user": "u", "store": true, "some_new_field": {"a": 1}, "top_k": -1)");
  EXPECT_TRUE(call) << call.error().message;
  // The likeliest token's own, and no others: that is something.
  EXPECT_EQ(Refused(Completion("\"a\"", ", \"logprobs\": 0")), "logprobs");
}

TEST(OpenAiRequest, WrongValuesAreRefusedByName) {
  const std::pair<const char*, const char*> wrong[] = {{"temperature", "-0.1"},
                                                       {"temperature", "\"hot\""},
                                                       {"temperature", "2.5"},
                                                       {"top_p", "0"},
                                                       {"top_p", "1.01"},
                                                       {"max_tokens", "0"},
                                                       {"max_tokens", "-1"},
                                                       {"max_tokens", "1.5"},
                                                       {"max_tokens", "18446744073709551615"},
                                                       {"seed", "\"a\""},
                                                       {"stop", "[\"\"]"},
                                                       {"stop", "3"},
                                                       {"stream", "1"},
                                                       {"stream_options", "true"},
                                                       {"model", "7"},
                                                       {"ignore_eos", "\"yes\""},
                                                       {"repetition_penalty", "0"}};
  for (const auto& [name, value] : wrong) {
    const auto call = Chat(", \"" + std::string(name) + "\": " + value);
    EXPECT_EQ(Refused(call), name) << value;
    if (!call) EXPECT_THAT(call.error().message, HasSubstr(name));
  }
  EXPECT_EQ(Refused(Chat(R"(, "stream_options": {"include_usage": 1})")),
            "stream_options.include_usage");
}

TEST(OpenAiRequest, WrongMessagesAreRefusedByPlace) {
  const auto refused = [](const std::string& messages) {
    return Refused(ParseGenerationCall(Endpoint::kChat, R"({"messages": )" + messages + "}"));
  };
  EXPECT_EQ(refused("[]"), "messages");
  EXPECT_EQ(refused("\"hi\""), "messages");
  EXPECT_EQ(refused("[3]"), "messages[0]");
  EXPECT_EQ(refused(R"([{"role": "tool", "content": "x"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"content": "x"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role": "user", "content": 3}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
            "messages[0].content");
}

TEST(OpenAiRequest, BodiesThatAreNoObjectAreRefused) {
  for (const char* body : {"", "{", "[]", "3", "{\"prompt\": \"a\", \"prompt\": \"b\"}"}) {
    const auto call = ParseGenerationCall(Endpoint::kCompletions, body);
    ASSERT_FALSE(call) << body;
    EXPECT_EQ(call.error().status, 400);
    EXPECT_EQ(call.error().code, "invalid_json") << body;
  }
}

TEST(OpenAiRequest, TokenizeTakesBothSpellings) {
  EXPECT_EQ(ParseTokenizeCall(R"({"prompt": "a"})")->text, "a");
  EXPECT_EQ(ParseTokenizeCall(R"({"content": "a", "add_special_tokens": false})")->add_special,
            false);
  EXPECT_FALSE(ParseTokenizeCall("{}"));
  EXPECT_FALSE(ParseTokenizeCall(R"({"prompt": 3})"));
  EXPECT_THAT(*ParseDetokenizeCall(R"({"tokens": [3, 4]})"), ElementsAre(3, 4));
  EXPECT_FALSE(ParseDetokenizeCall(R"({"tokens": "a"})"));
}

}  // namespace
}  // namespace turboquant::server
