#include "model/arch/registry.h"

#include <fmt/format.h>

#include <array>

#include "model/arch/architectures.h"

namespace turboquant {
namespace {

constexpr std::array kArchitectures = {
    Architecture{"llama", RopeStyle::kNorm, LlamaTensors, BuildLlama},
    Architecture{"qwen2", RopeStyle::kNeox, Qwen2Tensors, BuildQwen2},
    Architecture{"qwen3", RopeStyle::kNeox, Qwen3Tensors, BuildQwen3},
};

}  // namespace

std::span<const Architecture> AllArchitectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& arch : kArchitectures) {
    if (arch.name == name) return &arch;
  }
  return nullptr;
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& arch : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += arch.name;
  }
  return names;
}

std::string LayerTensorName(int layer, std::string_view suffix) {
  return fmt::format("blk.{}.{}", layer, suffix);
}

uint64_t QueryChannels(const ModelConfig& config) {
  return static_cast<uint64_t>(config.num_heads) * static_cast<uint64_t>(config.head_dim);
}

uint64_t KvChannels(const ModelConfig& config) {
  return static_cast<uint64_t>(config.num_kv_heads) * static_cast<uint64_t>(config.head_dim);
}

void AddLayerTensors(const ModelConfig& config, std::span<const TensorSpec> per_layer,
                     std::vector<TensorSpec>* specs) {
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorSpec& spec : per_layer) {
      specs->push_back({LayerTensorName(layer, spec.name), spec.shape, spec.required});
    }
  }
}

std::vector<TensorSpec> DecoderTensors(const ModelConfig& config) {
  const uint64_t d = static_cast<uint64_t>(config.hidden_size),
                 ff = static_cast<uint64_t>(config.intermediate_size);
  const uint64_t vocab = static_cast<uint64_t>(config.vocab_size);
  const uint64_t q = QueryChannels(config), kv = KvChannels(config);
  std::vector<TensorSpec> specs = {
      {std::string(kTokenEmbedding), {d, vocab}},
      {std::string(kOutput), {d, vocab}, /*required=*/false},
      {"output_norm.weight", {d}},
  };
  const std::vector<TensorSpec> layer = {
      {"attn_norm.weight", {d}},    {"attn_q.weight", {d, q}},      {"attn_k.weight", {d, kv}},
      {"attn_v.weight", {d, kv}},   {"attn_output.weight", {q, d}}, {"ffn_norm.weight", {d}},
      {"ffn_gate.weight", {d, ff}}, {"ffn_up.weight", {d, ff}},     {"ffn_down.weight", {ff, d}},
  };
  AddLayerTensors(config, layer, &specs);
  return specs;
}

}  // namespace turboquant
