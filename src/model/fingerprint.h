// What tells one model file from another, for files that are made for one model (scales, plans).
#ifndef TURBOQUANT_MODEL_FINGERPRINT_H_
#define TURBOQUANT_MODEL_FINGERPRINT_H_

#include <string>

#include "base/error.h"

namespace turboquant {

struct ModelFingerprint {
  std::string architecture;
  int num_layers = 0, num_kv_heads = 0, head_dim = 0;
  // XXH3 with 128 bits, hexadecimal. Tensors: name, type, shape and the first 64 KiB of each, so
  // that another quantization or fine-tuning of the same model differs. Tokenizer: all its
  // metadata.
  std::string tensor_hash, tokenizer_hash;
  bool operator==(const ModelFingerprint&) const = default;
};

// Reads the file at `path`; what Model::Load would refuse is refused.
Result<ModelFingerprint> FingerprintModel(const std::string& path);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_FINGERPRINT_H_
