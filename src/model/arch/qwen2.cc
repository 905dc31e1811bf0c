// Qwen 1.5, 2 and 2.5: the llama decoder with biases on q, k and v, and rotation of channel halves.
// Graph as in llama.cpp's src/models/qwen2.cpp.
#include "model/arch/architectures.h"
#include "model/graph_builder.h"

namespace turboquant {

std::vector<TensorSpec> Qwen2Tensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs = DecoderTensors(config);
  specs.push_back({"output.bias", {static_cast<uint64_t>(config.vocab_size)}, /*required=*/false});
  const uint64_t q = QueryChannels(config), kv = KvChannels(config);
  const std::vector<TensorSpec> layer = {
      {"attn_q.bias", {q}, false}, {"attn_k.bias", {kv}, false}, {"attn_v.bias", {kv}, false}};
  AddLayerTensors(config, layer, &specs);
  return specs;
}

ggml_tensor* BuildQwen2(GraphBuilder& b) {
  const ModelConfig& config = b.config();
  ggml_tensor* x = b.TokenEmbedding();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    ggml_tensor* h = b.RmsNorm(x, layer, "attn_norm");
    ggml_tensor* q = b.Rope(b.SplitHeads(b.Linear(h, layer, "attn_q"), config.num_heads));
    ggml_tensor* k = b.Rope(b.SplitHeads(b.Linear(h, layer, "attn_k"), config.num_kv_heads));
    ggml_tensor* v = b.Linear(h, layer, "attn_v");
    x = b.AttentionResidual(x, b.Attention(layer, q, k, v), layer);
    x = b.Add(x, b.GatedFeedForward(b.RmsNorm(x, layer, "ffn_norm"), layer));
  }
  return b.Logits(x);
}

}  // namespace turboquant
