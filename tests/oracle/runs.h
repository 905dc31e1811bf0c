// The same tokens through libllama's own decode and through our graph on the paged cache: what the
// oracle tests compare.
#ifndef TURBOQUANT_TESTS_ORACLE_RUNS_H_
#define TURBOQUANT_TESTS_ORACLE_RUNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/paged_attention.h"
#include "cache/kv_cache_manager.h"
#include "kernels/kernel_table.h"
#include "model/model.h"

struct llama_context;
struct llama_model;

namespace turboquant {

enum class OracleCache { kF32, kF16 };

// libllama with one sequence; flash attention off with an f32 cache (the reference), on with f16
// (what it serves).
class LlamaRun {
 public:
  LlamaRun(const std::string& path, OracleCache cache, int max_context, int num_threads);
  ~LlamaRun();
  // Feeds tokens in one batch and appends the logits of every one of them: [tokens][vocab_size].
  void Feed(std::span<const int32_t> tokens, std::vector<float>* logits);
  void Reset();  // forgets the sequence
  int vocab_size() const { return vocab_size_; }

 private:
  llama_model* model_;
  llama_context* context_;
  int vocab_size_;
  int num_tokens_ = 0;
};

// Our graph with one sequence.
class OurRun {
 public:
  struct Options {
    std::shared_ptr<const Model> model;
    std::string kv_cache_dtype;
    int max_context = 1024;
    int max_batch_tokens = 512;
    int num_threads = 1;
  };
  explicit OurRun(const Options& options);
  void Feed(std::span<const int32_t> tokens, std::vector<float>* logits);
  // The same without logits: the graph then ends at the last layer's store.
  void FeedSilently(std::span<const int32_t> tokens);
  void Reset();

 private:
  void Step(std::span<const int32_t> tokens, std::span<const int32_t> logits_rows, float* logits);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<KvCacheManager> manager_;
  KernelTable kernels_;
  std::unique_ptr<PagedAttention> attention_;
  GraphRunner runner_;
  SequenceId sequence_;
};

// The model of a GGUF with every weight as F32, by libllama, at `out`, unless it is there already.
void WriteF32Copy(const std::string& path, const std::string& out);

std::shared_ptr<const Model> LoadModel(const std::string& path, WeightMode weights);

struct Difference {
  float max_abs = 0;
  double mean_kl = 0;   // KL(reference || ours) in nats
  double same_top = 0;  // share of positions
  size_t num_positions = 0;
};
Difference Compare(std::span<const float> reference, std::span<const float> ours, int vocab_size);

// Index of the largest value.
int32_t Argmax(std::span<const float> logits);

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_ORACLE_RUNS_H_
