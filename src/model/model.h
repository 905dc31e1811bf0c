// A loaded model: hyperparameters, weights in ggml tensors, tokenizer, chat template. Immutable
// after Load; may be shared by several ModelRunners (each with its own cache).
#ifndef TURBOQUANT_MODEL_MODEL_H_
#define TURBOQUANT_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/paged_attention.h"
#include "base/error.h"

namespace turboquant {

class Tokenizer;

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;
  int num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int max_context = 0;  // as trained
  int rope_dim = 0;     // leading channels of a head that are rotated; even
  float rope_theta = 0;
  float rope_scale = 1;  // factor on positions: 1 / rope.scaling.factor of linear scaling
  float rms_eps = 0;
  int sliding_window = 0;
  std::string weight_types;  // "Q4_1 x 210, F32 x 61, Q8_0 x 1"
  uint64_t num_parameters = 0;
};

enum class WeightMode {
  kFile,         // as stored, repacked where that is faster
  kDequantized,  // every weight as F32: the cache is measured, not the rounding of activations
};

struct ModelOptions {
  std::string path;
  WeightMode weights = WeightMode::kFile;
};

// One per layer.
std::vector<LayerAttentionParams> AttentionParamsOf(const ModelConfig& config);

class Model {
 public:
  // Validates the file first (model/gguf.h, model/hyperparameters), then maps or converts the
  // weights.
  static Result<std::shared_ptr<const Model>> Load(const ModelOptions& options);
  ~Model();

  const ModelConfig& config() const;
  const Tokenizer& tokenizer() const;
  size_t weight_bytes() const;  // held in memory, mapped pages included
  std::vector<LayerAttentionParams> AttentionParams() const { return AttentionParamsOf(config()); }
  // Per layer the largest norm that the bias of K has over a KV head; 0 where there is none.
  std::vector<float> KeyBiasNorms() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Runs the graph of one step. Owns the ggml graphs (cached by number of rows and outputs), their
// buffers and the thread pool. One step at a time.
class GraphRunner {
 public:
  GraphRunner(std::shared_ptr<const Model> model, int max_threads);
  ~GraphRunner();

  // Threads of the steps that follow, 1 .. max_threads (CHECK); changes no result. max_threads at
  // first.
  void set_num_threads(int num_threads);

  // tokens, positions: one per row of the step that `attention` was begun with. logits_rows: rows
  // whose logits are wanted. logits: [logits_rows.size()][vocab_size]. Token ids must be <
  // vocab_size (CHECK). Not cancellable inside.
  void Forward(PagedAttention* attention, std::span<const int32_t> tokens,
               std::span<const int32_t> positions, std::span<const int32_t> logits_rows,
               float* logits);
  size_t buffer_bytes() const;  // graph buffers held

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_MODEL_H_
