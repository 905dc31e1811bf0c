// The weights of a model as ggml tensors: mapped from the file, repacked for ggml's fast kernels,
// or converted to f32.
#ifndef TURBOQUANT_MODEL_WEIGHTS_H_
#define TURBOQUANT_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
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

// Bytes of weights by where they lie. `mapped` are pages of the file that the graph reads; the
// system may drop and read them again. The rest is memory of the process.
struct WeightBytes {
  uint64_t mapped = 0, converted = 0, repacked = 0;
  uint64_t total() const { return mapped + converted + repacked; }
};

// Immutable after Load; may be read by many threads.
class ModelWeights {
 public:
  // What Load would hold, from the header alone: tensors have shapes, types and places but no data,
  // so that graphs can be planned over them and never run. `specs` as in Source.
  static std::unique_ptr<ModelWeights> Describe(const Gguf& gguf, std::span<const TensorSpec> specs,
                                                WeightMode mode);

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
  const WeightBytes& bytes() const;

  struct Impl;

 private:
  explicit ModelWeights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_WEIGHTS_H_
