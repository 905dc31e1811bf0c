// SmolLM2, Llama 2 and 3, Mistral, TinyLlama: pre-norm decoder, rotation of neighbouring channels,
// SwiGLU, optional rotation factors (Llama 3.1 and later) and biases. Graph as in llama.cpp's
// src/models/llama.cpp.
#include "model/arch/architectures.h"
#include "model/graph_builder.h"

namespace turboquant {

std::vector<TensorSpec> LlamaTensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs = DecoderTensors(config);
  specs.push_back(
      {"rope_freqs.weight", {static_cast<uint64_t>(config.rope_dim) / 2}, /*required=*/false});
  const uint64_t q = QueryChannels(config), kv = KvChannels(config);
  const uint64_t d = static_cast<uint64_t>(config.hidden_size),
                 ff = static_cast<uint64_t>(config.intermediate_size);
  const std::vector<TensorSpec> layer = {
      {"attn_q.bias", {q}, false},    {"attn_k.bias", {kv}, false},
      {"attn_v.bias", {kv}, false},   {"attn_output.bias", {d}, false},
      {"ffn_gate.bias", {ff}, false}, {"ffn_up.bias", {ff}, false},
      {"ffn_down.bias", {d}, false},
  };
  AddLayerTensors(config, layer, &specs);
  return specs;
}

ggml_tensor* BuildLlama(GraphBuilder& b) {
  const ModelConfig& config = b.config();
  ggml_tensor* rope_factors = b.Optional("rope_freqs.weight");
  ggml_tensor* x = b.TokenEmbedding();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    ggml_tensor* h = b.RmsNorm(x, layer, "attn_norm");
    ggml_tensor* q =
        b.Rope(b.SplitHeads(b.Linear(h, layer, "attn_q"), config.num_heads), rope_factors);
    ggml_tensor* k =
        b.Rope(b.SplitHeads(b.Linear(h, layer, "attn_k"), config.num_kv_heads), rope_factors);
    ggml_tensor* v = b.Linear(h, layer, "attn_v");
    x = b.AttentionResidual(x, b.Attention(layer, q, k, v), layer);
    x = b.Add(x, b.GatedFeedForward(b.RmsNorm(x, layer, "ffn_norm"), layer));
  }
  return b.Logits(x);
}

}  // namespace turboquant
