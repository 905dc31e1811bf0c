// Tokenizer, chat template and sampler on the vocabularies of the tiny models and of the default
// model.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "base/check.h"
#include "model/sampler.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  auto tokenizer = Tokenizer::Load(path);
  CHECK(tokenizer.has_value());
  return *std::move(tokenizer);
}
std::unique_ptr<Tokenizer> LoadTiny(const std::string& name) {
  return Load(fmt::format("{}/{}.gguf", TURBOQUANT_TINY_MODELS, name));
}

std::string EnglishText() {
  std::ifstream file(TURBOQUANT_SOURCE_DIR "/LICENSE");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string BytesOf(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  std::string bytes;
  for (const int32_t token : tokens) bytes += tokenizer.TokenToBytes(token);
  return bytes;
}

TEST(Tokenizer, TextComesBackFromItsTokens) {
  const std::string odd =
      "tabs\tand\n\nlines, na\xC3\xAFve \xE2\x82\xAC and \xF0\x9F\x98\x80 and <|im_start|> as text";
  const auto tiny = LoadTiny("llama-h64-g3");
  const auto real = Load(TURBOQUANT_DEFAULT_MODEL);
  for (const Tokenizer* tokenizer : {tiny.get(), real.get()}) {
    for (const std::string& text :
         {odd, EnglishText(), std::string(), std::string("\xFF\xFE bad bytes")}) {
      const std::vector<int32_t> tokens =
          tokenizer->Encode(text, /*add_special=*/false, /*parse_special=*/false);
      if (text.find('\xFF') == std::string::npos) {
        EXPECT_EQ(tokenizer->Decode(tokens), text);
        EXPECT_EQ(BytesOf(*tokenizer, tokens), text);
      }
    }
  }
  EXPECT_LT(real->Encode(EnglishText(), false, false).size(), EnglishText().size() / 3);
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAsked) {
  const auto tokenizer = Load(TURBOQUANT_DEFAULT_MODEL);
  const std::vector<int32_t> parsed =
      tokenizer->Encode("<|im_end|>", false, /*parse_special=*/true);
  ASSERT_EQ(parsed.size(), 1u);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(parsed[0]));
  EXPECT_EQ(tokenizer->TokenToBytes(parsed[0]), "");
  EXPECT_EQ(tokenizer->TokenToBytes(parsed[0], /*special=*/true), "<|im_end|>");
  const std::vector<int32_t> plain =
      tokenizer->Encode("<|im_end|>", false, /*parse_special=*/false);
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer->Decode(plain), "<|im_end|>");
}

TEST(Tokenizer, SentencePieceTokenizers) {
  const auto tokenizer = LoadTiny("llama-h64-spm");
  const std::vector<int32_t> tokens = tokenizer->Encode("hello world", /*add_special=*/true, false);
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(tokens[0], 1);  // BOS
  EXPECT_THAT(tokenizer->Decode(tokens), HasSubstr("hello world"));
}

TEST(Tokenizer, ChatTemplates) {
  const std::vector<ChatMessage> chat = {{"system", "Be brief."}, {"user", "Hi"}};
  const auto chatml =
      Load(TURBOQUANT_DEFAULT_MODEL)->ApplyChatTemplate(chat, /*add_generation_prompt=*/true);
  ASSERT_TRUE(chatml.has_value());
  EXPECT_EQ(*chatml,
            "<|im_start|>system\nBe "
            "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const auto open =
      Load(TURBOQUANT_DEFAULT_MODEL)->ApplyChatTemplate(chat, /*add_generation_prompt=*/false);
  EXPECT_EQ(*open + "<|im_start|>assistant\n", *chatml);
  const std::vector<ChatMessage> long_chat = {{"user", std::string(100000, 'x')}};
  EXPECT_THAT(Load(TURBOQUANT_DEFAULT_MODEL)->ApplyChatTemplate(long_chat, true).value(),
              HasSubstr(long_chat[0].content));
  const auto none = LoadTiny("llama-h64-spm");
  EXPECT_FALSE(none->has_chat_template());
  EXPECT_EQ(none->ApplyChatTemplate(chat, true).error().code, ErrorCode::kUnsupported);
}

TEST(Tokenizer, AFileThatIsNoModelIsAnError) {
  const auto result = Tokenizer::Load(TURBOQUANT_SOURCE_DIR "/LICENSE");
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message, HasSubstr("LICENSE"));
}

class SamplerTest : public testing::Test {
 protected:
  // Token 7 is likeliest, then 8, 9; the others are far below.
  std::vector<float> Logits() const {
    std::vector<float> logits(static_cast<size_t>(tokenizer_->vocab_size()), -20.0f);
    logits[7] = 3.0f;
    logits[8] = 2.5f;
    logits[9] = 1.0f;
    return logits;
  }
  std::map<int32_t, int> Histogram(const SamplingParams& params, int draws = 2000) const {
    std::map<int32_t, int> counts;
    Sampler sampler(*tokenizer_, params);
    for (int i = 0; i < draws; ++i) ++counts[sampler.Sample(Logits()).value()];
    return counts;
  }
  std::unique_ptr<Tokenizer> tokenizer_ = LoadTiny("llama-h64-g3");
};

TEST_F(SamplerTest, GreedyTakesTheLargest) {
  EXPECT_EQ(Histogram({}, 10), (std::map<int32_t, int>{{7, 10}}));
}

TEST_F(SamplerTest, SharesFollowTheSoftmax) {
  const auto counts = Histogram({.seed = 1, .temperature = 1.0f});
  const double norm = std::exp(3.0) + std::exp(2.5) + std::exp(1.0);
  for (const auto& [token, logit] : std::map<int32_t, double>{{7, 3.0}, {8, 2.5}, {9, 1.0}}) {
    const double share = std::exp(logit) / norm;
    const double sigma = std::sqrt(2000 * share * (1 - share));
    EXPECT_NEAR(counts.at(token), 2000 * share, 5 * sigma) << token;
  }
  EXPECT_EQ(counts.size(), 3u);
}

TEST_F(SamplerTest, TruncationsCutTheTail) {
  EXPECT_EQ(Histogram({.temperature = 1.0f, .top_k = 1}).size(), 1u);
  EXPECT_EQ(Histogram({.temperature = 1.0f, .top_k = 2}).size(), 2u);
  EXPECT_EQ(Histogram({.temperature = 1.0f, .top_p = 0.5f}).size(), 1u);  // 7 alone has 0.57
  EXPECT_EQ(Histogram({.temperature = 1.0f, .top_p = 0.9f}).size(), 2u);
  EXPECT_EQ(Histogram({.temperature = 1.0f, .min_p = 0.5f}).size(),
            2u);  // 8 has 0.61 of 7's, 9 has 0.14
}

TEST_F(SamplerTest, SeedsDecide) {
  const auto draw = [&](uint64_t seed) {
    Sampler sampler(*tokenizer_, {.seed = seed, .temperature = 1.0f});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.Sample(Logits()).value());
    return tokens;
  };
  // 0xFFFFFFFF in 32 bits means "choose at random" to libllama; to us it is a seed like any other.
  for (const uint64_t seed : {0ull, 1ull, 0xFFFFFFFFull, 0xFFFFFFFF00000000ull})
    EXPECT_EQ(draw(seed), draw(seed)) << seed;
  EXPECT_NE(draw(0), draw(1));
  EXPECT_NE(draw(1), draw(1ull << 32 | 5));
}

TEST_F(SamplerTest, RepetitionPenaltyCountsPromptAndOutput) {
  Sampler sampler(*tokenizer_, {.repetition_penalty = 2.0f});
  sampler.Accept(7);                               // 3.0 / 2 < 2.5
  EXPECT_EQ(sampler.Sample(Logits()).value(), 8);  // and now 8 has 1.25
  EXPECT_EQ(sampler.Sample(Logits()).value(), 7);
}

TEST_F(SamplerTest, LogitsThatAreNoNumbersAreErrors) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler(*tokenizer_, {.temperature = temperature});
    std::vector<float> logits = Logits();
    logits[300] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(sampler.Sample(logits).has_value());
    logits[300] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(sampler.Sample(logits).has_value());
    EXPECT_FALSE(sampler.Sample(std::vector<float>(512, -std::numeric_limits<float>::infinity()))
                     .has_value());
    EXPECT_TRUE(sampler.Sample(Logits()).has_value());
  }
}

TEST_F(SamplerTest, ParametersOutOfRangeAreRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(SamplingParams{}.Validate().has_value());
  for (const float bad : {-0.1f, nan, 1e9f}) {
    EXPECT_THAT(SamplingParams{.temperature = bad}.Validate().error().message,
                HasSubstr("temperature"));
    EXPECT_THAT(SamplingParams{.top_p = bad}.Validate().error().message, HasSubstr("top-p"));
    EXPECT_THAT(SamplingParams{.min_p = bad}.Validate().error().message, HasSubstr("min-p"));
    EXPECT_THAT(SamplingParams{.repetition_penalty = bad}.Validate().error().message,
                HasSubstr("repetition"));
  }
  EXPECT_THAT(SamplingParams{.top_k = -1}.Validate().error().message, HasSubstr("top-k"));
}

}  // namespace
}  // namespace turboquant
