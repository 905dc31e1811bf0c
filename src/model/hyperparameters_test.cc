#include "model/hyperparameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/gguf_test_util.h"

namespace turboquant {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The whole check of a file, as Model::Load does it.
Result<ModelConfig> Check(const GgufBuilder& builder, uint8_t fill = 0) {
  const std::vector<uint8_t> bytes = builder.Build(fill);
  TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(bytes, "x.gguf"));
  TQ_ASSIGN_OR_RETURN(ModelConfig config, ReadHyperparameters(file));
  TQ_RETURN_IF_ERROR(CheckTensors(file, config));
  return config;
}

struct Edited {
  GgufBuilder builder = TinyModel();
  ErrorCode code;
  std::string message;  // a part of it

  // edit: changes the tiny model.
  Edited(const std::function<void(GgufBuilder&)>& edit, ErrorCode c, std::string m)
      : code(c), message(std::move(m)) {
    edit(builder);
  }
};

void ExpectErrors(const std::vector<Edited>& cases) {
  for (const Edited& edited : cases) {
    const auto config = Check(edited.builder);
    ASSERT_FALSE(config) << "accepted; expected: " << edited.message;
    EXPECT_EQ(config.error().code, edited.code) << config.error().message;
    EXPECT_THAT(config.error().message, HasSubstr(edited.message));
    EXPECT_THAT(config.error().message, ::testing::StartsWith("x.gguf: "));
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
  }
}

TEST(HyperparametersTest, ReadsEveryArchitecture) {
  for (const std::string& name : {"llama", "qwen2", "qwen3"}) {
    const auto config = Check(TinyModel(name));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, name);
    EXPECT_EQ(config->name, "tiny");
    EXPECT_EQ(config->num_layers, 1);
    EXPECT_EQ(config->num_heads, 2);
    EXPECT_EQ(config->num_kv_heads, 1);
    EXPECT_EQ(config->head_dim, 16);
    EXPECT_EQ(config->rope_dim, 16);
    EXPECT_EQ(config->hidden_size, 32);
    EXPECT_EQ(config->intermediate_size, 64);
    EXPECT_EQ(config->vocab_size, 259);
    EXPECT_EQ(config->max_context, 128);
    EXPECT_EQ(config->rope_theta, 10000.0f);
    EXPECT_EQ(config->rope_scale, 1.0f);
    EXPECT_EQ(config->rms_eps, 1e-5f);
    EXPECT_EQ(config->sliding_window, 0);
    EXPECT_EQ(config->weight_types, name == "qwen3" ? "F32 x 13" : "F32 x 11");
    const uint64_t norms = name == "qwen3" ? 32 : 0;
    EXPECT_EQ(config->num_parameters,
              norms + 32 * 259 + 32 * 3 + 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64);
  }
}

TEST(HyperparametersTest, OptionalKeysHaveTheirDefaults) {
  GgufBuilder b = TinyModel();
  b.Erase("llama.rope.freq_base").Erase("general.name").Erase("llama.attention.head_count_kv");
  b.Tensor("blk.0.attn_k.weight", {32, 32}).Tensor("blk.0.attn_v.weight", {32, 32});
  b.Set<uint16_t>("split.count", GgufType::kU16, 1)
      .U32("llama.expert_count", 0)
      .Bool("llama.attention.causal", true);
  const auto config = Check(b);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_theta, 10000.0f);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->name, "");
}

TEST(HyperparametersTest, HeadSizeMayDifferFromHiddenOverHeads) {
  GgufBuilder b = TinyModel();
  b.U32("llama.attention.key_length", 48)
      .U32("llama.attention.value_length", 48)
      .U32("llama.rope.dimension_count", 48);
  b.Tensor("blk.0.attn_q.weight", {32, 96})
      .Tensor("blk.0.attn_k.weight", {32, 48})
      .Tensor("blk.0.attn_v.weight", {32, 48});
  b.Tensor("blk.0.attn_output.weight", {96, 32});
  const auto config = Check(b);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 48);
}

TEST(HyperparametersTest, RopeScaling) {
  const auto scale = [](const std::function<void(GgufBuilder&)>& edit) {
    GgufBuilder b = TinyModel();
    edit(b);
    const auto config = Check(b);
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->rope_scale : -1;
  };
  EXPECT_EQ(scale([](GgufBuilder& b) {
              b.String("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4);
            }),
            0.25f);
  EXPECT_EQ(scale([](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", 4); }),
            0.25f);  // as libllama reads it
  EXPECT_EQ(scale([](GgufBuilder& b) { b.F32("llama.rope.scale_linear", 2); }), 0.5f);
  EXPECT_EQ(scale([](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", 0); }), 1.0f);
  EXPECT_EQ(scale([](GgufBuilder& b) {
              b.String("llama.rope.scaling.type", "none").F32("llama.rope.scaling.factor", 4);
            }),
            1.0f);
  ExpectErrors({
      {[](GgufBuilder& b) { b.String("llama.rope.scaling.type", "yarn"); }, ErrorCode::kUnsupported,
       "rotary scaling of type 'yarn'"},
      {[](GgufBuilder& b) { b.String("llama.rope.scaling.type", "a\nb"); }, ErrorCode::kUnsupported,
       "'a\\x0ab'"},
      {[](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", -1); }, ErrorCode::kCorrupt,
       "llama.rope.scaling.factor"},
      {[](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", kNan); }, ErrorCode::kCorrupt,
       "llama.rope.scaling.factor"},
      {[](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", 1e-44f); }, ErrorCode::kCorrupt,
       "too close to 0"},
      {[](GgufBuilder& b) { b.U32("llama.rope.scaling.factor", 4); }, ErrorCode::kCorrupt,
       "expected a float"},
  });
}

TEST(HyperparametersTest, ArchitectureErrors) {
  ExpectErrors({
      {[](GgufBuilder& b) { b.Erase("general.architecture"); }, ErrorCode::kCorrupt,
       "'general.architecture' is missing"},
      {[](GgufBuilder& b) { b.U32("general.architecture", 1); }, ErrorCode::kCorrupt,
       "expected a string"},
      {[](GgufBuilder& b) { b.String("general.architecture", "mamba"); }, ErrorCode::kUnsupported,
       "architecture 'mamba' is not supported; supported: llama, qwen2, qwen3"},
      {[](GgufBuilder& b) { b.String("general.type", "adapter"); }, ErrorCode::kUnsupported,
       "type 'adapter'"},
      {[](GgufBuilder& b) { b.Set<uint16_t>("split.count", GgufType::kU16, 3); },
       ErrorCode::kUnsupported, "split into 3 files"},
      {[](GgufBuilder& b) { b.U32("split.count", 3); }, ErrorCode::kCorrupt, "expected u16"},
  });
}

TEST(HyperparametersTest, SizesOutOfRange) {
  std::vector<Edited> cases;
  const auto add = [&](std::string key, uint32_t value) {
    cases.push_back(
        {[=](GgufBuilder& b) { b.U32(key, value); }, ErrorCode::kCorrupt, "'" + key + "' is"});
  };
  for (const uint32_t layers : {0u, 513u, 1000000000u}) add("llama.block_count", layers);
  for (const uint32_t heads : {0u, 1025u, 4294967295u}) add("llama.attention.head_count", heads);
  for (const uint32_t heads : {0u, 4294967295u}) add("llama.attention.head_count_kv", heads);
  for (const uint32_t size : {0u, 65537u, 4294967295u}) add("llama.embedding_length", size);
  for (const uint32_t size : {0u, 4294967295u}) add("llama.feed_forward_length", size);
  for (const uint32_t size : {0u, 4294967295u}) add("llama.context_length", size);
  for (const uint32_t size : {0u, 1u, 18u}) add("llama.rope.dimension_count", size);
  add("llama.attention.key_length", 0);
  add("llama.vocab_size", 258);
  add("llama.attention.sliding_window", 4294967295u);
  for (const char* key : {"block_count", "context_length", "embedding_length",
                          "feed_forward_length", "attention.head_count"}) {
    const std::string full = std::string("llama.") + key;
    cases.push_back(
        {[=](GgufBuilder& b) { b.Erase(full); }, ErrorCode::kCorrupt, "'" + full + "' is missing"});
    cases.push_back({[=](GgufBuilder& b) { b.String(full, "3"); }, ErrorCode::kCorrupt,
                     "'" + full + "' has type string"});
    cases.push_back(
        {[=](GgufBuilder& b) { b.Array<uint32_t>(full, GgufType::kU32, std::vector<uint32_t>{1}); },
         ErrorCode::kUnsupported, "'" + full + "' has a value per layer"});
  }
  ExpectErrors(cases);
}

TEST(HyperparametersTest, HeadErrors) {
  ExpectErrors({
      {[](GgufBuilder& b) { b.U32("llama.attention.head_count", 3); }, ErrorCode::kCorrupt,
       "does not divide into 3 heads"},
      {[](GgufBuilder& b) { b.U32("llama.attention.head_count_kv", 3); }, ErrorCode::kCorrupt,
       "do not divide into 3 key-value heads"},
      {[](GgufBuilder& b) { b.U32("llama.attention.head_count", 4); }, ErrorCode::kUnsupported,
       "a head size of 8 is not supported"},
      {[](GgufBuilder& b) {
         b.U32("llama.attention.key_length", 528).U32("llama.attention.value_length", 528);
       },
       ErrorCode::kUnsupported, "a head size of 528"},
      {[](GgufBuilder& b) { b.U32("llama.attention.value_length", 32); }, ErrorCode::kUnsupported,
       "keys of 16 and values of 32"},
      {[](GgufBuilder& b) { b.U32("llama.rope.dimension_count", 9); }, ErrorCode::kCorrupt,
       "expected an even number"},
      {[](GgufBuilder& b) { b.U32("llama.rope.dimension_count", 8); }, ErrorCode::kUnsupported,
       "rotation of 8 of 16"},
  });
}

TEST(HyperparametersTest, FloatsOutOfRange) {
  const std::string eps = "llama.attention.layer_norm_rms_epsilon", theta = "llama.rope.freq_base";
  std::vector<Edited> cases;
  for (const float value : {0.0f, -1e-5f, 1.0f, 2.0f, kNan, kInf}) {
    cases.push_back(
        {[=](GgufBuilder& b) { b.F32(eps, value); }, ErrorCode::kCorrupt, "'" + eps + "' is"});
  }
  for (const float value : {0.0f, -1.0f, kNan, kInf}) {
    cases.push_back(
        {[=](GgufBuilder& b) { b.F32(theta, value); }, ErrorCode::kCorrupt, "'" + theta + "' is"});
  }
  // Not 0 as a double, but as a float.
  cases.push_back({[=](GgufBuilder& b) { b.Set<double>(eps, GgufType::kF64, 1e-60); },
                   ErrorCode::kCorrupt, "above 0"});
  cases.push_back({[=](GgufBuilder& b) { b.Erase(eps); }, ErrorCode::kCorrupt, "is missing"});
  cases.push_back(
      {[=](GgufBuilder& b) { b.U32(eps, 1); }, ErrorCode::kCorrupt, "expected a float"});
  ExpectErrors(cases);
}

TEST(HyperparametersTest, FeaturesThatWouldChangeTheResultAreRefused) {
  ExpectErrors({
      {[](GgufBuilder& b) { b.U32("llama.expert_count", 8); }, ErrorCode::kUnsupported,
       "mixture of experts"},
      {[](GgufBuilder& b) { b.Bool("llama.attention.causal", false); }, ErrorCode::kUnsupported,
       "not causal"},
      {[](GgufBuilder& b) { b.F32("llama.attention.scale", 0.1f); }, ErrorCode::kUnsupported,
       "softmax scale"},
      {[](GgufBuilder& b) { b.F32("llama.final_logit_softcapping", 30); }, ErrorCode::kUnsupported,
       "soft caps"},
      {[](GgufBuilder& b) { b.F32("llama.logit_scale", 0.5f); }, ErrorCode::kUnsupported,
       "logit scale"},
      {[](GgufBuilder& b) { b.F32("llama.rope.scaling.attn_factor", kNan); },
       ErrorCode::kUnsupported, "rotary attention factor"},
      {[](GgufBuilder& b) { b.String("llama.residual_scale", "1"); }, ErrorCode::kUnsupported,
       "residual scale"},
  });
}

TEST(HyperparametersTest, TensorErrorsNameTensorAndShapes) {
  ExpectErrors({
      {[](GgufBuilder& b) { b.EraseTensor("token_embd.weight"); }, ErrorCode::kCorrupt,
       "tensor 'token_embd.weight' is missing"},
      {[](GgufBuilder& b) { b.EraseTensor("blk.0.attn_k.weight"); }, ErrorCode::kCorrupt,
       "tensor 'blk.0.attn_k.weight' is missing, expected shape [32, 16]"},
      {[](GgufBuilder& b) { b.Tensor("blk.0.attn_k.weight", {16, 32}); }, ErrorCode::kCorrupt,
       "tensor 'blk.0.attn_k.weight' has shape [16, 32], expected [32, 16]"},
      {[](GgufBuilder& b) { b.Tensor("token_embd.weight", {259, 32}); }, ErrorCode::kCorrupt,
       "the embedding matrix 32 rows"},
      {[](GgufBuilder& b) { b.Tensor("token_embd.weight", {31, 259}); }, ErrorCode::kCorrupt,
       "expected [32, 259]"},
      {[](GgufBuilder& b) { b.Tensor("output.weight", {32, 258}); }, ErrorCode::kCorrupt,
       "expected [32, 259]"},
      {[](GgufBuilder& b) { b.Tensor("output_norm.weight", {32, 1, 2}); }, ErrorCode::kCorrupt,
       "[32, 1, 2], expected [32]"},
      {[](GgufBuilder& b) { b.Tensor("blk.0.ffn_up.weight", {32, 64}, 26); }, ErrorCode::kCorrupt,
       "type I32, which is no type of weights"},
      {[](GgufBuilder& b) { b.U32("llama.block_count", 2); }, ErrorCode::kCorrupt,
       "tensor 'blk.1.attn_norm.weight' is missing"},
      {[](GgufBuilder& b) { b.Tensor("blk.1.attn_norm.weight", {32}); }, ErrorCode::kUnsupported,
       "'blk.1.attn_norm.weight' has no place"},
      {[](GgufBuilder& b) { b.Tensor("blk.0.attn_q_norm.weight", {16}); }, ErrorCode::kUnsupported,
       "has no place in the graph"},
      {[](GgufBuilder& b) { b.Tensor("blk.0.ffn_gate_exps.weight", {32, 64, 2}); },
       ErrorCode::kUnsupported, "has no place in the graph"},
  });
}

TEST(HyperparametersTest, OptionalTensorsAreChecked) {
  GgufBuilder b = TinyModel();
  b.Tensor("output.weight", {32, 259})
      .Tensor("blk.0.attn_q.bias", {32})
      .Tensor("blk.0.ffn_gate.weight", {32, 64}, 8);
  EXPECT_TRUE(Check(b)) << Check(b).error().message;
  EXPECT_EQ(Check(b)->weight_types, "F32 x 12, Q8_0 x 1");
  b.Tensor("blk.0.attn_q.bias", {16});
  EXPECT_THAT(Check(b).error().message, HasSubstr("expected [32]"));
}

TEST(HyperparametersTest, RotationFactorsMustBePositive) {
  GgufBuilder b = TinyModel();
  b.Tensor("rope_freqs.weight", {8});
  EXPECT_TRUE(Check(b, 0x3f));  // 0.747...
  EXPECT_THAT(Check(b, 0).error().message, HasSubstr("'rope_freqs.weight' is 0 at element 0"));
  EXPECT_THAT(Check(b, 0xff).error().message, HasSubstr("rope_freqs.weight"));  // NaN
  EXPECT_THAT(Check(b, 0xbf).error().message, HasSubstr("rope_freqs.weight"));  // negative
  b.Tensor("rope_freqs.weight", {8}, 1);
  EXPECT_EQ(Check(b, 0x3f).error().code, ErrorCode::kUnsupported);
}

// A vocabulary of SentencePiece's kind.
GgufBuilder SpmModel() {
  GgufBuilder b = TinyModel();
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  std::vector<int32_t> types(tokens.size(), 6);
  types[0] = types[1] = types[2] = 3;
  b.String("tokenizer.ggml.model", "llama")
      .Erase("tokenizer.ggml.merges")
      .Strings("tokenizer.ggml.tokens", tokens);
  b.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, types);
  b.Array<float>("tokenizer.ggml.scores", GgufType::kF32, std::vector<float>(tokens.size(), -1.0f));
  return b;
}

std::vector<std::string> TokensOf(const GgufBuilder& builder) {
  const std::vector<uint8_t> bytes = builder.Build();
  const auto file = Gguf::Parse(bytes, "x");
  const auto& views = (*file->GetArray("tokenizer.ggml.tokens"))->strings;
  return {views.begin(), views.end()};
}

TEST(VocabularyTest, BothKindsAreAccepted) {
  EXPECT_TRUE(Check(TinyModel()));
  EXPECT_TRUE(Check(SpmModel())) << Check(SpmModel()).error().message;
}

TEST(VocabularyTest, WhatLibllamaWouldAbortOnIsRefused) {
  std::vector<std::string> duplicate = TokensOf(TinyModel()), clash = duplicate,
                           longest = duplicate, empty = duplicate;
  duplicate[7] = duplicate[8];
  clash[7] = "";  // libllama calls it [EMPTY_7]
  clash[9] = "[EMPTY_7]";
  empty[7] = "";
  longest[7] = std::string(1025, 'a');
  std::vector<std::string> many_long;
  for (size_t i = 0; i < 259; ++i) many_long.push_back(std::to_string(i) + std::string(1020, 'a'));
  std::vector<std::string> no_byte = TokensOf(SpmModel());
  no_byte[3 + 0x41] = "A";  // the byte itself will do
  EXPECT_TRUE(Check(
      SpmModel().Erase("tokenizer.ggml.token_type").Strings("tokenizer.ggml.tokens", no_byte)));
  no_byte[3 + 0x41] = "AA";
  EXPECT_TRUE(Check(TinyModel().Strings("tokenizer.ggml.tokens", empty)));

  const auto tokens = [](const std::vector<std::string>& list) {
    return [&list](GgufBuilder& b) { b.Strings("tokenizer.ggml.tokens", list); };
  };
  ExpectErrors({
      {tokens(duplicate), ErrorCode::kCorrupt, "token 8 is there twice: 'token5'"},
      {tokens(clash), ErrorCode::kCorrupt, "token 9 is there twice"},
      {tokens(longest), ErrorCode::kCorrupt, "token 7 has 1025 bytes"},
      {tokens(many_long), ErrorCode::kCorrupt, "absurdly long"},
      {[&](GgufBuilder& b) {
         b = SpmModel()
                 .Erase("tokenizer.ggml.token_type")
                 .Strings("tokenizer.ggml.tokens", no_byte);
       },
       ErrorCode::kCorrupt, "no token for the byte <0x41>"},
      {[](GgufBuilder& b) {
         b.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32,
                          std::vector<int32_t>(259, 6));
       },
       ErrorCode::kCorrupt, "token 0 has the type of a byte"},
  });
}

TEST(VocabularyTest, KeysHaveTheTypesThatLibllamaWants) {
  const auto array = [](std::string key, size_t n) {
    return
        [=](GgufBuilder& b) { b.Array<int32_t>(key, GgufType::kI32, std::vector<int32_t>(n, 1)); };
  };
  const auto u32 = [](std::string key, uint32_t value) {
    return [=](GgufBuilder& b) { b.U32(key, value); };
  };
  ExpectErrors({
      {[](GgufBuilder& b) { b.Erase("tokenizer.ggml.model"); }, ErrorCode::kCorrupt,
       "'tokenizer.ggml.model' is missing"},
      {[](GgufBuilder& b) { b.String("tokenizer.ggml.model", "bert"); }, ErrorCode::kUnsupported,
       "tokenizer model 'bert'"},
      {[](GgufBuilder& b) { b.Erase("tokenizer.ggml.tokens"); }, ErrorCode::kCorrupt,
       "'tokenizer.ggml.tokens' is missing"},
      {[](GgufBuilder& b) { b.Strings("tokenizer.ggml.tokens", {}); }, ErrorCode::kCorrupt,
       "0 tokens, the embedding matrix 259"},
      {array("tokenizer.ggml.tokens", 259), ErrorCode::kCorrupt,
       "an array of i32, expected string"},
      {[](GgufBuilder& b) { b.Erase("tokenizer.ggml.merges"); }, ErrorCode::kCorrupt,
       "'tokenizer.ggml.merges' is missing"},
      {array("tokenizer.ggml.merges", 3), ErrorCode::kCorrupt, "an array of i32"},
      {array("tokenizer.ggml.token_type", 258), ErrorCode::kCorrupt,
       "has 258 elements, expected 259"},
      {u32("tokenizer.ggml.token_type", 3), ErrorCode::kCorrupt, "expected an array"},
      {array("tokenizer.ggml.scores", 3), ErrorCode::kCorrupt, "has 3 elements"},
      {[](GgufBuilder& b) { b = SpmModel().Erase("tokenizer.ggml.scores"); }, ErrorCode::kCorrupt,
       "'tokenizer.ggml.scores' is missing"},
      {[](GgufBuilder& b) {
         b = SpmModel().Array<float>("tokenizer.ggml.scores", GgufType::kF32,
                                     std::vector<float>(259, kNan));
       },
       ErrorCode::kCorrupt, "not a number"},
      {[](GgufBuilder& b) { b.Strings("tokenizer.ggml.suppress_tokens", {}); }, ErrorCode::kCorrupt,
       "expected i32"},
      {u32("tokenizer.ggml.pre", 3), ErrorCode::kCorrupt, "expected string"},
      {u32("tokenizer.ggml.add_bos_token", 1), ErrorCode::kCorrupt, "expected bool"},
      {u32("tokenizer.chat_template", 1), ErrorCode::kCorrupt, "expected string"},
      {u32("general.name", 1), ErrorCode::kCorrupt, "expected a string"},
      {u32("tokenizer.ggml.bos_token_id", 259), ErrorCode::kCorrupt, "is 259, expected 0 to 258"},
      {u32("tokenizer.ggml.fim_pad_token_id", 4294967295u), ErrorCode::kCorrupt,
       "fim_pad_token_id"},
      {[](GgufBuilder& b) { b.Set<int32_t>("tokenizer.ggml.eos_token_id", GgufType::kI32, 2); },
       ErrorCode::kCorrupt, "expected u32"},
  });
}

// libllama drops a default that is no token and asserts when a prompt has to start with it.
TEST(VocabularyTest, BosAndEosMustExist) {
  const std::vector<std::string> few = {"a", "b", "c"};
  for (const std::string& key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    GgufBuilder b = TinyModel();
    b.Erase(key);
    EXPECT_TRUE(Check(b)) << Check(b).error().message;
    b.Strings("tokenizer.ggml.tokens", few)
        .Tensor("token_embd.weight", {32, 3})
        .Erase("tokenizer.ggml.token_type");
    EXPECT_THAT(Check(b).error().message, HasSubstr(key + "' is missing, and its default 11"));
  }
}

}  // namespace
}  // namespace turboquant
