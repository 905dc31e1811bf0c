#include "model/fingerprint.h"

#include <algorithm>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "model/gguf.h"
#include "model/hyperparameters.h"

namespace turboquant {
namespace {

constexpr uint64_t kSampleBytes = 64 * 1024;  // of every tensor

std::string HashTensors(const Gguf& gguf) {
  Hasher hasher;
  for (const GgufTensor& tensor : gguf.tensors()) {
    hasher.Add(tensor.name);
    hasher.AddNumber(tensor.ggml_type);
    for (const uint64_t extent : tensor.shape) hasher.AddNumber(extent);
    hasher.Add(gguf.Data(tensor).first(std::min(tensor.bytes, kSampleBytes)));
  }
  return hasher.Hex();
}

void AddArray(const GgufArray& array, Hasher* hasher) {
  hasher->AddNumber(array.count);
  hasher->Add(array.raw);
  for (const std::string_view text : array.strings) hasher->Add(text);
}

std::string HashTokenizer(const Gguf& gguf) {
  Hasher hasher;
  for (const GgufEntry& entry : gguf.metadata()) {
    if (!entry.key.starts_with("tokenizer.")) continue;
    hasher.Add(entry.key);
    hasher.AddNumber(static_cast<uint64_t>(entry.type));
    if (const auto* text = std::get_if<std::string_view>(&entry.value)) hasher.Add(*text);
    if (const auto* array = std::get_if<GgufArray>(&entry.value)) AddArray(*array, &hasher);
    if (const auto* number = std::get_if<uint64_t>(&entry.value)) hasher.AddNumber(*number);
    if (const auto* flag = std::get_if<bool>(&entry.value)) hasher.AddNumber(*flag ? 1 : 0);
  }
  return hasher.Hex();
}

}  // namespace

Result<ModelFingerprint> FingerprintModel(const std::string& path) {
  TQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TQ_ASSIGN_OR_RETURN(const Gguf gguf, Gguf::Parse(file.bytes(), path));
  TQ_ASSIGN_OR_RETURN(const ModelConfig config, ReadHyperparameters(gguf));
  return ModelFingerprint{.architecture = config.architecture,
                          .num_layers = config.num_layers,
                          .num_kv_heads = config.num_kv_heads,
                          .head_dim = config.head_dim,
                          .tensor_hash = HashTensors(gguf),
                          .tokenizer_hash = HashTokenizer(gguf)};
}

}  // namespace turboquant
