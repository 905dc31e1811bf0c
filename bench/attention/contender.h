// What the attention bench compares: one engine with one cache format on one shape.
#ifndef TURBOQUANT_BENCH_ATTENTION_CONTENDER_H_
#define TURBOQUANT_BENCH_ATTENTION_CONTENDER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "bench/attention/team.h"
#include "kernels/kernel_table.h"

namespace turboquant::bench {

// From so many queries on they are part of the context (a prompt's chunk); fewer come after it.
inline constexpr int kPromptQueries = 64;

struct Shape {
  int head_dim = 128;
  int num_kv_heads = 8;
  int group = 4;  // query heads per KV head
  int context = 16384;
  int queries = 1;  // per sequence
  int sequences = 1;
  bool shared = false;  // the sequences share their whole context
  int block_size = 64;
  size_t min_bytes = 0;  // of all layers together

  int NumHeads() const { return num_kv_heads * group; }
  // Tokens that are there before the queries' own.
  int Depth() const { return queries >= kPromptQueries ? context - queries : context; }
  // Layers that make up min_bytes. Arithmetic, not memory, bounds a prompt: two layers do.
  int NumLayers(size_t bytes_per_layer) const {
    const size_t wanted = (min_bytes + bytes_per_layer - 1) / std::max<size_t>(bytes_per_layer, 1);
    return static_cast<int>(std::clamp<size_t>(wanted, 1, queries >= kPromptQueries ? 2 : 512));
  }
  // Multiplications of QK and PV of one layer, causal.
  double MultiplyAdds() const {
    const double tokens = queries * (Depth() + 0.5 * (queries + 1));
    return 2.0 * tokens * head_dim * NumHeads() * sequences;
  }
};

class Contender {
 public:
  virtual ~Contender() = default;
  // Seconds of the attention of all layers, one after the other.
  virtual double Run(Team& team) = 0;

  std::string engine, k, v, isa;
  bool integer = false;  // products of integers, not floats
  int num_layers = 0;
  size_t cache_bytes = 0;  // K and V of all layers, scales included; shared ones once
};

// Our paged attention; block ids are shuffled. `format` as --kv-cache-dtype takes it.
std::unique_ptr<Contender> MakeOurs(const Shape& shape, const std::string& format,
                                    const KernelTable& kernels, int num_threads);
// ggml_flash_attn_ext on K and V laid out as llama.cpp's cache is. format: f16, q8_0 or q4_0.
std::unique_ptr<Contender> MakeGgml(const Shape& shape, const std::string& format, int num_threads);

// The same of another ggml that lives in a library of its own (ggml_attention.cc). Exits where
// `path` is none.
using MakeContenderFn = Contender* (*)(const Shape& shape, const char* format, int num_threads);
MakeContenderFn LoadIk(const std::string& path);

}  // namespace turboquant::bench

#endif  // TURBOQUANT_BENCH_ATTENTION_CONTENDER_H_
