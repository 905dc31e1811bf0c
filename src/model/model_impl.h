// Inside of a Model, for model.cc and graph_runner.cc.
#ifndef TURBOQUANT_MODEL_MODEL_IMPL_H_
#define TURBOQUANT_MODEL_MODEL_IMPL_H_

#include <memory>

#include "model/arch/registry.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "model/weights.h"

namespace turboquant {

struct Model::Impl {
  ModelConfig config;
  const Architecture* architecture = nullptr;
  std::unique_ptr<ModelWeights> weights;
  std::unique_ptr<Tokenizer> tokenizer;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_MODEL_IMPL_H_
