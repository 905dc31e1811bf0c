#include "model/model.h"

#include <cmath>
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
size_t Model::weight_bytes() const { return impl_->weights->bytes().total(); }

std::vector<LayerAttentionParams> AttentionParamsOf(const ModelConfig& config) {
  LayerAttentionParams params;
  params.num_heads = config.num_heads;
  params.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  params.sliding_window = config.sliding_window;
  return std::vector<LayerAttentionParams>(static_cast<size_t>(config.num_layers), params);
}

}  // namespace turboquant
