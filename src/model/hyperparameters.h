// From the metadata of a GGUF to a checked ModelConfig, and from a ModelConfig to the tensors that
// must be there. After ReadHyperparameters and CheckTensors have passed, ggml can build the graph
// and libllama can open the vocabulary without an assertion of theirs being met. Errors name the
// key or tensor, what was found and what is allowed. Keys: the GGUF specification and llama.cpp's
// src/llama-arch.cpp.
#ifndef TURBOQUANT_MODEL_HYPERPARAMETERS_H_
#define TURBOQUANT_MODEL_HYPERPARAMETERS_H_

#include <string>

#include "base/error.h"
#include "model/gguf.h"
#include "model/model.h"

namespace turboquant {

// kCorrupt: a key is missing, of a wrong type or out of range. kUnsupported: the architecture, rope
// scaling, tokenizer or another feature that would change the result is not one this build
// computes. The vocabulary is checked too.
Result<ModelConfig> ReadHyperparameters(const Gguf& file);

// The tensors are those of Architecture::tensors (model/arch/registry.h): every required one is
// there, all have their exact shape and a type that ggml multiplies, rotation factors are finite
// and positive; otherwise kCorrupt. A tensor that the graph does not read gives kUnsupported: it
// would change the result.
Status CheckTensors(const Gguf& file, const ModelConfig& config);

// "Q4_1 x 210, F32 x 61, Q8_0 x 1", most frequent first.
std::string SummarizeWeightTypes(const Gguf& file);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_HYPERPARAMETERS_H_
