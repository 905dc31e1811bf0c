#include "model/model.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "model/gguf.h"
#include "model/hyperparameters.h"
#include "model/model_impl.h"

namespace turboquant {

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Load(const ModelOptions& options) {
  TQ_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(options.path));
  TQ_ASSIGN_OR_RETURN(const Gguf gguf, Gguf::Parse(file.bytes(), options.path));
  auto impl = std::make_unique<Impl>();
  TQ_ASSIGN_OR_RETURN(impl->config, ReadHyperparameters(gguf));
  TQ_RETURN_IF_ERROR(CheckTensors(gguf, impl->config));
  impl->architecture = FindArchitecture(impl->config.architecture);
  CHECK(impl->architecture != nullptr);  // ReadHyperparameters refuses others
  TQ_ASSIGN_OR_RETURN(impl->tokenizer, Tokenizer::Load(options.path));
  if (impl->tokenizer->vocab_size() != impl->config.vocab_size) {
    return Fail(ErrorCode::kCorrupt, "{}: the tokenizer has {} tokens, the embedding {} rows",
                options.path, impl->tokenizer->vocab_size(), impl->config.vocab_size);
  }
  const std::vector<TensorSpec> specs = impl->architecture->tensors(impl->config);
  ModelWeights::Source source{
      .file = std::move(file), .gguf = &gguf, .specs = specs, .mode = options.weights};
  TQ_ASSIGN_OR_RETURN(impl->weights, ModelWeights::Load(std::move(source)));
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const { return impl_->config; }
const Tokenizer& Model::tokenizer() const { return *impl_->tokenizer; }
std::vector<float> Model::KeyBiasNorms() const {
  const auto head_dim = static_cast<size_t>(config().head_dim);
  std::vector<float> norms;
  for (int layer = 0; layer < config().num_layers; ++layer) {
    const ggml_tensor* bias = impl_->weights->Find(fmt::format("blk.{}.attn_k.bias", layer));
    float& largest = norms.emplace_back(0.0f);
    if (bias == nullptr) continue;
    std::vector<float> values(static_cast<size_t>(bias->ne[0]));
    if (bias->type == GGML_TYPE_F32) {
      std::memcpy(values.data(), bias->data, values.size() * sizeof(float));
    } else {
      ggml_get_type_traits(bias->type)->to_float(bias->data, values.data(), bias->ne[0]);
    }
    for (size_t head = 0; head + head_dim <= values.size(); head += head_dim) {
      float squares = 0;
      for (size_t c = head; c < head + head_dim; ++c) squares += values[c] * values[c];
      largest = std::max(largest, std::sqrt(squares));
    }
  }
  return norms;
}
size_t Model::weight_bytes() const { return impl_->weights->bytes().total(); }

std::vector<LayerAttentionParams> AttentionParamsOf(const ModelConfig& config) {
  LayerAttentionParams params;
  params.num_heads = config.num_heads;
  params.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  params.sliding_window = config.sliding_window;
  return std::vector<LayerAttentionParams>(static_cast<size_t>(config.num_layers), params);
}

}  // namespace turboquant
