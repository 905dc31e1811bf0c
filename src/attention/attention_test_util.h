// For tests: a cache with its attention, sequences whose tokens are functions of (seed, layer,
// position), steps run with any number of threads, and a plain double-precision reference with the
// error bound that goes with it.
#ifndef TURBOQUANT_ATTENTION_ATTENTION_TEST_UTIL_H_
#define TURBOQUANT_ATTENTION_ATTENTION_TEST_UTIL_H_

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/paged_attention.h"
#include "base/check.h"
#include "base/half.h"
#include "cache/kv_cache_manager.h"
#include "codec/tile.h"
#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"

namespace turboquant::attention_test {

inline std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : kAllIsas) {
    if (CanRun(isa, DetectCpuFeatures())) isas.push_back(isa);
  }
  return isas;
}

struct Geometry {
  std::string format = "int8";   // of --kv-cache-dtype
  std::string granularity = "";  // of --kv-scale-granularity, empty = the format's default
  std::string transform = "";    // of --kv-transform, empty = the format's default
  int num_kv_heads = 2;
  int group = 2;
  int head_dim = 64;
  int block_size = 32;
  int num_sink_tokens = 4;
  int num_recent_tokens = 0;
  int sliding_window = 0;
  float logit_softcap = 0;
  float query_gain = 1;  // larger = more peaked attention
};

inline std::string Describe(const Geometry& g) {
  return fmt::format(
      "{} {} {} kv_heads {} group {} head_dim {} block {} sinks {} recent {} window {} cap {}",
      g.format, g.granularity, g.transform, g.num_kv_heads, g.group, g.head_dim, g.block_size,
      g.num_sink_tokens, g.num_recent_tokens, g.sliding_window, g.logit_softcap);
}
inline void PrintTo(const Geometry& geometry, std::ostream* out) { *out << Describe(geometry); }

struct HarnessOptions {
  std::vector<Geometry> layers = {Geometry{}};
  Isa isa = Isa::kScalar;
  int num_threads = 1;
  int max_threads = 0;  // 0: num_threads
  int max_num_seqs = 4;
  int max_batch_tokens = 600;
  int max_context = 2048;
  int num_blocks = 512;
};

// Uniform in [-1, 1), a function of its arguments (splitmix64).
inline float Uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t x =
      seed * 0x9E3779B97F4A7C15u + stream * 0xBF58476D1CE4E5B9u + index * 0x94D049BB133111EBu;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 40) * 0x1p-23 - 1.0);
}

enum class Kind : uint8_t { kQuery, kKey, kValue };

// The vectors of one token: [num_heads][head_dim], channel 5 of K ten times the others, as in real
// models.
inline std::vector<float> TokenVector(Kind kind, const Geometry& geometry, uint64_t seed, int layer,
                                      int position) {
  const int heads = geometry.num_kv_heads * (kind == Kind::kQuery ? geometry.group : 1);
  std::vector<float> row(static_cast<size_t>(heads * geometry.head_dim));
  const uint64_t stream = static_cast<uint64_t>(kind) + 3 * static_cast<uint64_t>(layer);
  const auto first = static_cast<uint64_t>(position) * row.size();
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = 1.7f * Uniform(seed, stream, first + i);
    if (kind == Kind::kQuery) row[i] *= geometry.query_gain;
    if (kind == Kind::kKey && static_cast<int>(i) % geometry.head_dim == 5) row[i] *= 10;
  }
  return row;
}

struct TestSequence {
  SequenceId id;
  int num_tokens = 0;
  std::vector<std::pair<int, uint64_t>> seeds;  // tokens from this position on come from this seed
  uint64_t SeedAt(int position) const {
    uint64_t seed = 0;
    for (const auto& [start, value] : seeds) {
      if (position >= start) seed = value;
    }
    return seed;
  }
};

struct StepChunk {
  TestSequence* sequence;
  int num_tokens;
};

class Harness {
 public:
  explicit Harness(const HarnessOptions& options)
      : options_(options), kernels_(MakeKernelTable(options.isa, DetectCpuFeatures())) {
    KvCacheConfig config;
    std::vector<LayerAttentionParams> params;
    for (const Geometry& geometry : options.layers) {
      std::vector<std::string> notes;
      const auto sides =
          ParseKvFormat(geometry.format, geometry.granularity, geometry.transform, &notes);
      CHECK(sides.has_value());
      config.layers.push_back({.k = sides->k,
                               .v = sides->v,
                               .num_kv_heads = geometry.num_kv_heads,
                               .head_dim = geometry.head_dim,
                               .block_size = geometry.block_size});
      config.static_scales.push_back({.k = StaticScales(sides->k, geometry, 17.0f),
                                      .v = StaticScales(sides->v, geometry, 1.7f),
                                      .k_balance = Balance(sides->k, geometry)});
      config.num_sink_tokens = geometry.num_sink_tokens;
      config.num_recent_tokens = geometry.num_recent_tokens;
      params.push_back({.num_heads = geometry.num_kv_heads * geometry.group,
                        .scale = 1.0f / std::sqrt(static_cast<float>(geometry.head_dim)),
                        .sliding_window = geometry.sliding_window,
                        .logit_softcap = geometry.logit_softcap});
    }
    config.num_blocks = options.num_blocks;
    config.max_num_seqs = options.max_num_seqs;
    auto manager = KvCacheManager::Create(config);
    if (!manager) fmt::print(stderr, "{}\n", manager.error().message);
    CHECK(manager.has_value());
    manager_ = std::move(*manager);
    attention_ = std::make_unique<PagedAttention>(
        manager_.get(), &kernels_, params,
        AttentionLimits{.max_batch_tokens = options.max_batch_tokens,
                        .max_num_seqs = options.max_num_seqs,
                        .max_context = options.max_context,
                        .max_threads = std::max(options.max_threads, options.num_threads)});
  }

  KvCacheManager& manager() { return *manager_; }
  PagedAttention& attention() { return *attention_; }
  const KernelTable& kernels() const { return kernels_; }
  const HarnessOptions& options() const { return options_; }

  TestSequence Add(uint64_t seed) {
    const auto id = manager_->AddSequence();
    CHECK(id.has_value());
    return {.id = *id, .num_tokens = 0, .seeds = {{0, seed}}};
  }
  TestSequence Fork(const TestSequence& parent, uint64_t seed) {
    const auto id = manager_->Fork(parent.id);
    CHECK(id.has_value());
    TestSequence child = parent;
    child.id = *id;
    child.seeds.emplace_back(parent.num_tokens, seed);
    return child;
  }

  // One step; the outputs of the chunks, one after the other: [layer][row][num_heads * head_dim].
  std::vector<std::vector<float>> Step(const std::vector<StepChunk>& step) {
    Begin(step);
    std::vector<std::vector<float>> out(options_.layers.size());
    for (size_t layer = 0; layer < out.size(); ++layer) {
      FillRows(step, static_cast<int>(layer));
      out[layer] = RunLayer(static_cast<int>(layer));
    }
    for (const StepChunk& chunk : step) {
      manager_->Commit(chunk.sequence->id);
      chunk.sequence->num_tokens += chunk.num_tokens;
    }
    return out;
  }

  // Feeds tokens in chunks of at most chunk_tokens; outputs as Step's, over all of them.
  std::vector<std::vector<float>> Feed(TestSequence* sequence, int num_tokens, int chunk_tokens) {
    std::vector<std::vector<float>> all(options_.layers.size());
    for (int done = 0; done < num_tokens; done += chunk_tokens) {
      const auto out = Step({{sequence, std::min(chunk_tokens, num_tokens - done)}});
      for (size_t layer = 0; layer < all.size(); ++layer) {
        all[layer].insert(all[layer].end(), out[layer].begin(), out[layer].end());
      }
    }
    return all;
  }

  // Stores tokens without attending to anything: context made quickly.
  void StoreOnly(TestSequence* sequence, int num_tokens) {
    const std::vector<StepChunk> step = {{sequence, num_tokens}};
    Begin(step);
    for (size_t layer = 0; layer < options_.layers.size(); ++layer) {
      FillRows(step, static_cast<int>(layer));
      attention_->StoreKv(static_cast<int>(layer), k_.data(), k_stride_, v_.data(), k_stride_, 0,
                          1);
      attention_->KeepRecent(static_cast<int>(layer), 0, 1);
    }
    manager_->Commit(sequence->id);
    sequence->num_tokens += num_tokens;
  }

  // The parts of Step, for tests that look between them.
  void Begin(const std::vector<StepChunk>& step) {
    chunks_.clear();
    num_rows_ = 0;
    for (const StepChunk& chunk : step) {
      CHECK(manager_->AllocateSlots(chunk.sequence->id, chunk.num_tokens));
      chunks_.push_back({.sequence = chunk.sequence->id,
                         .start = chunk.sequence->num_tokens,
                         .num_tokens = chunk.num_tokens,
                         .first_row = num_rows_});
      num_rows_ += chunk.num_tokens;
    }
    attention_->BeginStep(chunks_);
  }
  // Rows are padded by a few floats, so that strides matter.
  void FillRows(const std::vector<StepChunk>& step, int layer) {
    const Geometry& geometry = options_.layers[static_cast<size_t>(layer)];
    const auto kv_row = static_cast<size_t>(geometry.num_kv_heads * geometry.head_dim);
    k_stride_ = kv_row + 3;
    q_stride_ = kv_row * static_cast<size_t>(geometry.group) + 5;
    q_.assign(static_cast<size_t>(num_rows_) * q_stride_, NAN);
    k_.assign(static_cast<size_t>(num_rows_) * k_stride_, NAN);
    v_.assign(static_cast<size_t>(num_rows_) * k_stride_, NAN);
    size_t row = 0;
    for (const StepChunk& chunk : step) {
      for (int i = 0; i < chunk.num_tokens; ++i, ++row) {
        const int position = chunk.sequence->num_tokens + i;
        const uint64_t seed = chunk.sequence->SeedAt(position);
        std::ranges::copy(TokenVector(Kind::kQuery, geometry, seed, layer, position),
                          q_.begin() + static_cast<std::ptrdiff_t>(row * q_stride_));
        std::ranges::copy(TokenVector(Kind::kKey, geometry, seed, layer, position),
                          k_.begin() + static_cast<std::ptrdiff_t>(row * k_stride_));
        std::ranges::copy(TokenVector(Kind::kValue, geometry, seed, layer, position),
                          v_.begin() + static_cast<std::ptrdiff_t>(row * k_stride_));
      }
    }
  }
  // out: [rows][num_heads * head_dim]
  std::vector<float> RunLayer(int layer) {
    const Geometry& geometry = options_.layers[static_cast<size_t>(layer)];
    const auto width =
        static_cast<size_t>(geometry.num_kv_heads * geometry.group * geometry.head_dim);
    std::vector<float> out(static_cast<size_t>(num_rows_) * width, NAN);
    std::barrier barrier(options_.num_threads);
    const auto work = [&](int ith) {
      attention_->StoreKv(layer, k_.data(), k_stride_, v_.data(), k_stride_, ith,
                          options_.num_threads);
      barrier.arrive_and_wait();
      attention_->Attend(layer, q_.data(), q_stride_, out.data(), width, ith, options_.num_threads);
      barrier.arrive_and_wait();
      attention_->Merge(layer, out.data(), width, ith, options_.num_threads);
    };
    std::vector<std::jthread> threads;
    for (int ith = 1; ith < options_.num_threads; ++ith) threads.emplace_back(work, ith);
    work(0);
    return out;
  }

 private:
  static std::vector<float> Balance(const KvSideSpec& side, const Geometry& geometry) {
    if (side.transform != KvTransform::kBalanced) return {};
    std::vector<float> balance(static_cast<size_t>(geometry.num_kv_heads * geometry.head_dim));
    for (size_t i = 0; i < balance.size(); ++i) {
      balance[i] = 0.3f + 0.41f * static_cast<float>(i % 7);
    }
    return balance;
  }

  static std::vector<float> StaticScales(const KvSideSpec& side, const Geometry& geometry,
                                         float amax) {
    const float unit = side.dtype == KvCacheDtype::kInt4Sym ? 1.0f / 7 : 1.0f / 127;
    const auto heads = static_cast<size_t>(geometry.num_kv_heads);
    size_t count = 0;
    switch (side.granularity) {
      case ScaleGranularity::kNone:
      case ScaleGranularity::kPerBlock:
      case ScaleGranularity::kPerTokenHead:
      case ScaleGranularity::kPerTokenHeadU8:
      case ScaleGranularity::kPerGroup:
        return {};
      case ScaleGranularity::kPerTensor:
        count = 1;
        break;
      case ScaleGranularity::kPerHead:
        count = heads;
        break;
      case ScaleGranularity::kPerChannel:
        count = heads * static_cast<size_t>(geometry.head_dim);
        break;
    }
    std::vector<float> scales(count);
    for (size_t i = 0; i < count; ++i)
      scales[i] = amax * unit * (0.5f + 0.03f * static_cast<float>(i % 17));
    return scales;
  }

  HarnessOptions options_;
  KernelTable kernels_;
  std::unique_ptr<KvCacheManager> manager_;
  std::unique_ptr<PagedAttention> attention_;
  std::vector<SequenceChunk> chunks_;
  int num_rows_ = 0;
  size_t q_stride_ = 0, k_stride_ = 0;
  std::vector<float> q_, k_, v_;
};

}  // namespace turboquant::attention_test

#endif  // TURBOQUANT_ATTENTION_ATTENTION_TEST_UTIL_H_
