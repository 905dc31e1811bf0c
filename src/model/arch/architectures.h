// What each architecture file defines; listed in registry.cc.
#ifndef TURBOQUANT_MODEL_ARCH_ARCHITECTURES_H_
#define TURBOQUANT_MODEL_ARCH_ARCHITECTURES_H_

#include <vector>

#include "model/arch/registry.h"

namespace turboquant {

std::vector<TensorSpec> LlamaTensors(const ModelConfig& config);
ggml_tensor* BuildLlama(GraphBuilder& builder);

std::vector<TensorSpec> Qwen2Tensors(const ModelConfig& config);
ggml_tensor* BuildQwen2(GraphBuilder& builder);

std::vector<TensorSpec> Qwen3Tensors(const ModelConfig& config);
ggml_tensor* BuildQwen3(GraphBuilder& builder);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_ARCH_ARCHITECTURES_H_
