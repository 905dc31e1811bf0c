// Qwen 3 (dense): RMS norm of every query and key head before the rotation of channel halves; the
// head size is given apart from the hidden size. Graph as in llama.cpp's src/models/qwen3.cpp.
#include "model/arch/architectures.h"
#include "model/graph_builder.h"

namespace turboquant {

std::vector<TensorSpec> Qwen3Tensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs = DecoderTensors(config);
  const uint64_t q = QueryChannels(config), kv = KvChannels(config),
                 head_dim = static_cast<uint64_t>(config.head_dim);
  const std::vector<TensorSpec> layer = {
      {"attn_q.bias", {q}, false},        {"attn_k.bias", {kv}, false},
      {"attn_v.bias", {kv}, false},       {"attn_q_norm.weight", {head_dim}},
      {"attn_k_norm.weight", {head_dim}},
  };
  AddLayerTensors(config, layer, &specs);
  return specs;
}

ggml_tensor* BuildQwen3(GraphBuilder& b) {
  const ModelConfig& config = b.config();
  ggml_tensor* x = b.TokenEmbedding();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    ggml_tensor* h = b.RmsNorm(x, layer, "attn_norm");
    ggml_tensor* q = b.SplitHeads(b.Linear(h, layer, "attn_q"), config.num_heads);
    ggml_tensor* k = b.SplitHeads(b.Linear(h, layer, "attn_k"), config.num_kv_heads);
    ggml_tensor* v = b.Linear(h, layer, "attn_v");
    q = b.Rope(b.RmsNorm(q, layer, "attn_q_norm"));
    k = b.Rope(b.RmsNorm(k, layer, "attn_k_norm"));
    x = b.AttentionResidual(x, b.Attention(layer, q, k, v), layer);
    x = b.Add(x, b.GatedFeedForward(b.RmsNorm(x, layer, "ffn_norm"), layer));
  }
  return b.Logits(x);
}

}  // namespace turboquant
