// The architectures that this build can run. Adding one = one file beside this one + one line in
// registry.cc.
#ifndef TURBOQUANT_MODEL_ARCH_REGISTRY_H_
#define TURBOQUANT_MODEL_ARCH_REGISTRY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

struct ggml_tensor;

namespace turboquant {

class GraphBuilder;  // model/graph_builder.h

// How ggml pairs the channels that a rotation turns together. It is not written in the file.
enum class RopeStyle : uint8_t {
  kNorm,  // neighbours (2i, 2i + 1)
  kNeox,  // halves (i, i + rope_dim / 2)
};

// One tensor that the graph reads. The same list drives the check of a file (hyperparameters.h) and
// the loading. One dimension: a vector (norm weight, bias, rotation factors), f32 in the graph.
// Two: a matrix of any weight type whose ne[0] is the input size.
struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;  // ne[0] first
  bool required = true;
};
// Rows are looked up by token; also the output matrix where the file has no kOutput ("tied").
inline constexpr std::string_view kTokenEmbedding = "token_embd.weight";
inline constexpr std::string_view kOutput = "output.weight";

struct Architecture {
  std::string_view name;  // general.architecture
  RopeStyle rope_style;
  // Every tensor that a model with these hyperparameters may have; what is not listed is not read.
  std::vector<TensorSpec> (*tensors)(const ModelConfig& config);
  // Builds the graph of one step; returns the logits [vocab_size, num_outputs].
  ggml_tensor* (*build)(GraphBuilder& builder);
};

std::span<const Architecture> AllArchitectures();
const Architecture* FindArchitecture(std::string_view name);  // null if this build does not have it
std::string ArchitectureNames();                              // "llama, qwen2, qwen3"

// Tensors that all decoder-only models with gated feed-forward share: embedding, norms,
// attn_{q,k,v,output}, ffn_{gate,up,down}, output_norm, optional output. Biases and other extras
// are the architecture's own.
std::vector<TensorSpec> DecoderTensors(const ModelConfig& config);
// Adds every tensor of `per_layer`, whose names are suffixes ("attn_q.bias"), for every layer.
void AddLayerTensors(const ModelConfig& config, std::span<const TensorSpec> per_layer,
                     std::vector<TensorSpec>* specs);
// Channels of all query heads and of all KV heads.
uint64_t QueryChannels(const ModelConfig& config);
uint64_t KvChannels(const ModelConfig& config);
std::string LayerTensorName(int layer, std::string_view suffix);  // "blk.3.attn_q.weight"

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_ARCH_REGISTRY_H_
