// The weights of a model as ggml tensors: mapped from the file, repacked for ggml's fast kernels,
// or converted to f32.
#ifndef TURBOQUANT_MODEL_WEIGHTS_H_
#define TURBOQUANT_MODEL_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/arch/registry.h"
#include "model/gguf.h"
#include "model/model.h"

struct ggml_tensor;

namespace turboquant {

// Immutable after Load; may be read by many threads.
class ModelWeights {
 public:
  struct Source {
    MappedFile file;   // becomes the ModelWeights'
    const Gguf* gguf;  // parsed from the file's bytes
    std::span<const TensorSpec>
        specs;  // names, shapes and types already checked (hyperparameters.h)
    WeightMode mode;
  };
  // kOutOfMemory where converted weights do not fit.
  static Result<std::unique_ptr<ModelWeights>> Load(Source source);
  ~ModelWeights();

  // Left operand of a matrix product, or a vector; null where the file has none. The token
  // embedding is found only where it is the output matrix too.
  ggml_tensor* Find(std::string_view name) const;
  // The token embedding, as a table whose rows can be looked up.
  ggml_tensor* FindRows(std::string_view name) const;
  size_t bytes() const;  // mapped and read by the graph + converted + repacked

 private:
  struct Impl;
  explicit ModelWeights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_WEIGHTS_H_
