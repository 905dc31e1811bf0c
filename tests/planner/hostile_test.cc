// Configs that are wrong, absurd or unknown are refused with one line that names the cause.
#include "planner_test_util.h"

namespace turboquant {
namespace {

std::string Config(const std::string& fields) {
  return R"({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 4096)" +
         fields + "}";
}

Error Refused(const std::string& json) {
  const auto shape = ReadHfConfig(json, "config.json");
  EXPECT_FALSE(shape) << json;
  if (shape) return {};
  EXPECT_EQ(shape.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(shape.error().message.starts_with("config.json: ")) << shape.error().message;
  return shape.error();
}

TEST(PlannerHostile, TheBaseIsGood) { EXPECT_TRUE(ReadHfConfig(Config(""), "config.json")); }

TEST(PlannerHostile, UnknownArchitecturesAreRefusedByName) {
  const Error error = Refused(R"({"model_type": "frobnicator", "num_hidden_layers": 4})");
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_HAS(error.message, "'frobnicator'");
  EXPECT_HAS(error.message, "known: deepseek_v2");
  EXPECT_EQ(Refused("{}").code, ErrorCode::kUnsupported);
  EXPECT_HAS(Refused(Config(R"(, "layer_types": ["full_attention", "full_attention",
    "full_attention", "chunked_attention"])"))
                 .message,
             "'chunked_attention'");
}

TEST(PlannerHostile, NoJson) {
  for (const char* text : {"", "nonsense", "[1, 2]", "{\"a\": ", "\xff\xfe", "12", "null"})
    EXPECT_EQ(Refused(text).code, ErrorCode::kCorrupt);
  Refused(std::string(100000, '['));
}

TEST(PlannerHostile, NumbersOutOfRange) {
  for (const char* value :
       {"-1", "0", "1.5", "1e9", "99999999999999999999", "-99999999999999999999", "true", "\"4\"",
        "[4]", "{}", "4294967300", "1073741825", "18446744073709551615", "1e999"}) {
    const std::string json = fmt::format(
        R"({{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": {}, "num_attention_heads": 16, "vocab_size": 32000}})",
        value);
    EXPECT_EQ(Refused(json).code, ErrorCode::kCorrupt) << value;
  }
  for (const char* key : {"hidden_size", "num_attention_heads", "vocab_size", "head_dim",
                          "num_key_value_heads", "max_position_embeddings", "intermediate_size"}) {
    for (const char* value : {"-7", "9000000000000000000", "0"}) {
      // A later field of the same name counts.
      EXPECT_HAS(Refused(Config(fmt::format(R"(, "{}": {})", key, value))).message, key);
    }
  }
}

TEST(PlannerHostile, HeadsThatDoNotDivide) {
  EXPECT_HAS(Refused(Config(R"(, "num_key_value_heads": 5)")).message, "do not divide");
  EXPECT_HAS(Refused(Config(R"(, "num_attention_heads": 12)")).message, "does not divide");
}

TEST(PlannerHostile, ListsOfAnotherLength) {
  EXPECT_HAS(Refused(Config(R"(, "num_key_value_heads_per_layer": [4, 4])")).message,
             "each of 4 layers");
  EXPECT_HAS(Refused(Config(R"(, "layer_types": [1, 2, 3, 4])")).message, "expected text");
}

TEST(PlannerHostile, ProductsThatOverflow) {
  const Error error = Refused(R"({"model_type": "qwen3_moe", "hidden_size": 4194304,
    "intermediate_size": 4194304, "moe_intermediate_size": 4194304, "num_hidden_layers": 1024,
    "num_attention_heads": 4096, "num_key_value_heads": 4096, "head_dim": 16384,
    "num_experts": 65536, "num_experts_per_tok": 1, "vocab_size": 4194304})");
  EXPECT_HAS(error.message, "parameters");
  // The largest cache that is believed, for the most and longest sequences, does not wrap.
  const auto shape = ReadHfConfig(R"({"model_type": "gemma3n_text", "hidden_size": 4194304,
    "num_hidden_layers": 1024, "num_attention_heads": 4096, "num_key_value_heads": 4096,
    "head_dim": 16384, "vocab_size": 4194304, "sliding_window": 1073741824})",
                                  "config.json");
  ASSERT_TRUE(shape) << shape.error().message;
  for (const auto& [engine, format] :
       {std::pair(EngineKind::kLlamaCpp, "f32"), {EngineKind::kVllm, "auto"}}) {
    const auto profile = MakeCacheProfile(
        *shape, {.engine = engine, .cache = {.kv_cache_dtype = format, .block_size = 0}});
    ASSERT_TRUE(profile) << profile.error().message;
    uint64_t before = 0;
    for (int64_t seqs = 1; seqs < (int64_t{1} << 40); seqs *= 2) {
      const uint64_t bytes = (*profile)->Bytes(int64_t{1} << 30, seqs).total();
      EXPECT_GE(bytes, before);
      before = bytes;
    }
    EXPECT_EQ(before, UINT64_MAX);
  }
}

TEST(PlannerHostile, FlagsOutOfRange) {
  EXPECT_HAS(MakeError("qwen3-4b", {.num_seqs = 0}).message, "--max-num-seqs 0");
  EXPECT_HAS(MakeError("qwen3-4b", {.num_seqs = -4}).message, "--max-num-seqs -4");
  EXPECT_HAS(MakeError("qwen3-4b", {.context = -1}).message, "--max-model-len -1");
  EXPECT_HAS(MakeError("qwen3-4b", {.num_seqs = 513}).message, "--max-batch-tokens");
  EXPECT_HAS(
      MakeError("qwen3-4b", {.engine = EngineKind::kVllm, .format = "auto", .ranks = 0}).message,
      "--tensor-parallel-size 0");
  EXPECT_HAS(MakeError("qwen3-4b", {.engine = EngineKind::kLlamaCpp, .format = "int8"}).message,
             "q8_0");
  EXPECT_HAS(MakeError("qwen3-4b", {.engine = EngineKind::kVllm, .format = "q8_0"}).message,
             "int8_per_token_head");
}

}  // namespace
}  // namespace turboquant
