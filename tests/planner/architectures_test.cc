// Twelve public models by their published sizes: bytes per token against hand arithmetic, and every
// kind of layer either computed as its engine stores it or refused by name.
#include <fmt/ranges.h>

#include "planner_test_util.h"

namespace turboquant {
namespace {

constexpr EngineKind kOurs = EngineKind::kTurboquant, kLlama = EngineKind::kLlamaCpp,
                     kVllm = EngineKind::kVllm;

// layers x KV heads x (K + V channels) x 2 bytes.
double HalfBytes(int layers, int kv_heads, int k_and_v) {
  return 2.0 * layers * kv_heads * k_and_v;
}

struct Published {
  const char* name;
  double f16_bytes_per_token;
  double parameters;  // as published; 0: only a rounded figure is
};
const Published kGrouped[] = {
    {"llama-2-7b", HalfBytes(32, 32, 256), 6738415616.0},
    {"llama-2-13b", HalfBytes(40, 40, 256), 13015864320.0},
    {"llama-2-70b", HalfBytes(80, 8, 256), 68976648192.0},
    {"llama-3.1-8b", HalfBytes(32, 8, 256), 8030261248.0},
    {"llama-3.1-70b", HalfBytes(80, 8, 256), 70553706496.0},
    {"qwen2.5-7b", HalfBytes(28, 4, 256), 7615616512.0},
    {"qwen3-4b", HalfBytes(36, 8, 256), 4022468096.0},
    {"qwen3-30b-a3b", HalfBytes(48, 4, 256), 30532122624.0},
    {"mistral-7b", HalfBytes(32, 8, 256), 7241732096.0},
    {"phi-4-mini", HalfBytes(32, 8, 256), 3836021760.0},
    {"gemma-3-27b", HalfBytes(62, 16, 256), 0},
};

TEST(PlannerModels, BytesPerTokenAreHandArithmetic) {
  for (const Published& model : kGrouped) {
    for (const EngineKind engine : {kOurs, kLlama}) {
      EXPECT_EQ(BytesPerToken(model.name, engine, "f16"), model.f16_bytes_per_token) << model.name;
    }
    EXPECT_EQ(BytesPerToken(model.name, kVllm, "auto"), model.f16_bytes_per_token) << model.name;
  }
  // The two that everybody knows.
  EXPECT_EQ(BytesPerToken("llama-2-7b", kOurs, "f16"), 512 * kKiB);
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "f16"), 128 * kKiB);
  // MLA: 512 + 64 values per token and layer, whatever the number of heads.
  for (const EngineKind engine : {kLlama, kVllm}) {
    EXPECT_EQ(BytesPerToken("deepseek-v3", engine, engine == kVllm ? "auto" : "f16"), 61 * 576 * 2);
  }
  EXPECT_EQ(BytesPerToken("deepseek-v3", kVllm, "fp8_ds_mla"), 61 * 656);
}

TEST(PlannerModels, ParametersAreThePublishedOnes) {
  for (const Published& model : kGrouped) {
    if (model.parameters == 0) continue;
    const ModelShape shape = Source(model.name).shape();
    EXPECT_EQ(static_cast<double>(shape.num_parameters), model.parameters) << model.name;
    EXPECT_EQ(static_cast<double>(shape.weights_bytes), 2 * model.parameters) << model.name;
  }
  EXPECT_NEAR(static_cast<double>(Source("gemma-3-27b").shape().num_parameters), 27.0e9, 0.05e9);
  const ModelShape deepseek = Source("deepseek-v3").shape();
  EXPECT_NEAR(static_cast<double>(deepseek.num_parameters), 671.0e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(deepseek.active_parameters), 37.0e9, 1e9);
  const ModelShape qwen = Source("qwen3-30b-a3b").shape();
  EXPECT_NEAR(static_cast<double>(qwen.active_parameters), 3.3e9, 0.4e9);
}

TEST(PlannerModels, ScalesAndZeroPointsAreCounted) {
  // 128 channels, and per head and 64 tokens a header of 64 + 64 scales, 128 or 64 of K's mean and
  // 6 shared bytes, padded to 320 or 256: 5 or 4 bytes a token.
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "int8"), 32 * 8 * (2 * 128 + 5));
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "int4"), 32 * 8 * (2 * 64 + 4));
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "int4_sym"), 32 * 8 * 2 * (64 + 2));
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "int4_asym"), 32 * 8 * 2 * (64 + 4));
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kOurs, "int8/int4"), 32 * 8 * (128 + 64 + 5));
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kLlama, "q8_0"), 32 * 8 * 2 * 4 * 34);
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kLlama, "q8_0/q4_0"), 32 * 8 * 4 * (34 + 18));
  // vLLM's table for heads of 128: 256, 264 and 136 bytes for K and V.
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kVllm, "fp8"), 32 * 8 * 256);
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kVllm, "int8_per_token_head"), 32 * 8 * 264);
  EXPECT_EQ(BytesPerToken("llama-3.1-8b", kVllm, "int4_per_token_head"), 32 * 8 * 136);
  const Ledger ledger = Make("llama-3.1-8b", {.format = "int8", .context = 64 * 100});
  EXPECT_EQ(ledger.cache.payload, 100u * 64 * 32 * 8 * 256);
  EXPECT_EQ(ledger.cache.scales, 100u * 32 * 8 * (64 + 64 + 128 + 6));
  EXPECT_DOUBLE_EQ(ledger.profile->BitsPerValue(), 8.15625);
}

TEST(PlannerModels, WindowsAreKeptByTheEnginesThatKeepThem) {
  constexpr int kContext = 32768;
  const double token = 16 * 256 * 2;  // one layer of Gemma 3 27B, f16
  // llama.cpp: 10 full layers, 52 of window and micro-batch.
  const Ledger llama = Make("gemma-3-27b", {.engine = kLlama, .context = kContext});
  EXPECT_EQ(static_cast<double>(llama.cache.total()), token * (10.0 * kContext + 52.0 * 1536));
  // vLLM: 6 groups of 10 layers for the windows, of which 8 are filled up; blocks of 16.
  const Ledger vllm = Make("gemma-3-27b", {.engine = kVllm, .format = "auto", .context = kContext});
  const double window_blocks = (1024 - 1 + 512 + 15) / 16 + 1;
  EXPECT_EQ(static_cast<double>(vllm.cache.total()),
            token * 10 * (kContext + 6 * 16 * window_blocks));
  // Ours keeps all tokens, and says so.
  const Ledger ours = Make("gemma-3-27b", {.context = kContext});
  EXPECT_EQ(static_cast<double>(ours.cache.total() - ours.cache.sequences), token * 62 * kContext);
  EXPECT_HAS(fmt::format("{}", fmt::join(ours.notes, "; ")), "keep all tokens");
}

TEST(PlannerModels, AWindowIsCappedByTheContext) {
  const double token = 16 * 256 * 2;
  const Ledger llama = Make("gemma-3-27b", {.engine = kLlama, .context = 512});
  EXPECT_EQ(static_cast<double>(llama.cache.total()), token * 62 * 512);
  // Phi-4-mini's window is longer than its context, and so none.
  const LedgerSource phi = Source("phi-4-mini");
  for (const LayerShape& layer : phi.shape().layers) EXPECT_EQ(layer.kind, LayerKind::kFull);
  EXPECT_EQ(Source("mistral-7b").shape().layers[0].window, 4096);
}

TEST(PlannerModels, SharedLayersStoreNothing) {
  const Ledger llama = Make("gemma-3n-e4b", {.engine = kLlama, .context = 4096});
  EXPECT_EQ(llama.profile->layers()[20].shape.kind, LayerKind::kShared);
  // Of 20 layers that store, every fifth sees all: 4 full, 16 with a window of 512.
  EXPECT_EQ(static_cast<double>(llama.cache.total()),
            2 * 512 * 2.0 * (4 * 4096 + 16 * (512 + 512)));
  EXPECT_HAS(MakeError("gemma-3n-e4b", {}).message, "layer 20 (shared)");
}

TEST(PlannerModels, RecurrentLayersHaveAStateOrAreRefused) {
  const Ledger llama = Make("qwen3-next-80b-a3b", {.engine = kLlama, .context = 4096});
  // 36 layers: 3 steps of a convolution over 2 x 16 x 128 + 32 x 128 channels, 32 matrices of
  // 128 x 128, f32. 12 layers with 2 KV heads of 256.
  EXPECT_EQ(llama.cache.state, 36u * 4 * (3 * 8192 + 32 * 128 * 128));
  EXPECT_EQ(llama.cache.payload, 12u * 2 * 512 * 2 * 4096);
  EXPECT_HAS(MakeError("qwen3-next-80b-a3b", {}).message, "layer 0 (recurrent)");
  EXPECT_HAS(MakeError("qwen3-next-80b-a3b", {.engine = kVllm, .format = "auto"}).message,
             "layer 0 (recurrent)");
}

TEST(PlannerModels, LatentLayersAreRefusedByOurCache) {
  const Error error = MakeError("deepseek-v3", {});
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_HAS(error.message, "layer 0 (latent)");
  EXPECT_HAS(MakeError("deepseek-v3", {.engine = kVllm, .format = "int8_per_token_head"}).message,
             "latent");
}

TEST(PlannerModels, RanksDivideOrRepeatKvHeads) {
  const auto per_rank = [](const char* name, int ranks) {
    return Make(name, {.engine = kVllm, .format = "auto", .ranks = ranks}).profile->BytesPerToken();
  };
  EXPECT_EQ(per_rank("llama-3.1-70b", 4), HalfBytes(80, 2, 256));
  EXPECT_EQ(per_rank("llama-3.1-70b", 8), HalfBytes(80, 1, 256));
  EXPECT_EQ(per_rank("llama-3.1-70b", 16), HalfBytes(80, 1, 256));  // every head on two ranks
  EXPECT_EQ(per_rank("deepseek-v3", 8), 61 * 576 * 2);              // the latent on every rank
  EXPECT_HAS(MakeError("llama-3.1-70b", {.engine = kVllm, .format = "auto", .ranks = 3}).message,
             "8 KV heads");
  EXPECT_HAS(MakeError("llama-3.1-70b", {.ranks = 2}).message, "one process");
}

TEST(PlannerModels, HeadsByLayer) {
  const std::string config = R"({"model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 16,
    "vocab_size": 1000, "max_position_embeddings": 2048,
    "num_key_value_heads_per_layer": [8, 4, 1]})";
  const auto shape = ReadHfConfig(config, "config.json");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->layers[0].num_kv_heads, 8);
  EXPECT_EQ(shape->layers[2].num_kv_heads, 1);  // MQA
  const auto profile = MakeCacheProfile(*shape, {.cache = {.kv_cache_dtype = "f16"}});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ((*profile)->BytesPerToken(), 2.0 * (8 + 4 + 1) * 128);
}

}  // namespace
}  // namespace turboquant
