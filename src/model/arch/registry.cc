#include "model/arch/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
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

std::string LayerTensorName(int layer, std::string_view suffix) { return fmt::format("blk.{}.{}", layer, suffix); }

std::vector<TensorSpec> DecoderTensors(const ModelConfig& config) {
  const auto size = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t d = size(config.hidden_size), ff = size(config.intermediate_size), vocab = size(config.vocab_size);
  const uint64_t q = size(config.num_heads) * size(config.head_dim);
  const uint64_t kv = size(config.num_kv_heads) * size(config.head_dim);
  std::vector<TensorSpec> specs = {
      {std::string(kTokenEmbedding), {d, vocab}},
      {std::string(kOutput), {d, vocab}, /*required=*/false},
      {"output_norm.weight", {d}},
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](std::string_view suffix, std::vector<uint64_t> shape) {
      specs.push_back({LayerTensorName(layer, suffix), std::move(shape)});
    };
    add("attn_norm.weight", {d});
    add("attn_q.weight", {d, q});
    add("attn_k.weight", {d, kv});
    add("attn_v.weight", {d, kv});
    add("attn_output.weight", {q, d});
    add("ffn_norm.weight", {d});
    add("ffn_gate.weight", {d, ff});
    add("ffn_up.weight", {d, ff});
    add("ffn_down.weight", {ff, d});
  }
  return specs;
}

void AddOptionalBiases(const ModelConfig& config, const std::vector<std::string>& names, std::vector<TensorSpec>* specs) {
  const size_t num_weights = specs->size();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string& name : names) {
      const std::string weight = LayerTensorName(layer, name + ".weight");
      const auto end = specs->begin() + static_cast<ptrdiff_t>(num_weights);
      const auto it = std::find_if(specs->begin(), end, [&](const TensorSpec& spec) { return spec.name == weight; });
      CHECK(it != end);
      const uint64_t size = it->shape[1];
      specs->push_back({LayerTensorName(layer, name + ".bias"), {size}, /*required=*/false});
    }
  }
}

}  // namespace turboquant
