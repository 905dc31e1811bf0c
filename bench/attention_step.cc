// Times the attention of one decode step (StoreKv + Attend + Merge of every layer) at several
// depths, beside a plain streaming read of the very same cache bytes by the same threads in the
// same run.
//
//   attention_step [--formats int8,int4,f16] [--depths 1024,4096,8192,16384] [--threads 1,2] [--isa
//   auto]
//                  [--heads 9] [--kv-heads 3] [--head-dim 64] [--layers 30] [--block-size 64]
//                  [--reps 21] [--queries 1]
//
// ms: sum over layers of the layer's shortest time over the repetitions, from the first thread's
// start to the last one's end: what a step takes when no other process interferes. wall: median
// over repetitions of a whole step, as it was. GB/s: bytes of all closed blocks (codes and scales)
// by ms. read: the same bytes, summed up by plain loads, cut into the same layers, timed the same
// way. Choose layers and depth so that the bytes exceed the last-level cache.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "attention/paged_attention.h"
#include "base/aligned_buffer.h"
#include "base/check.h"
#include "cache/kv_cache_manager.h"
#include "kernels/kernel_table.h"

namespace turboquant {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> formats = {"int8", "int4", "f16"};
  std::vector<int> depths = {1024, 4096, 8192, 16384};
  std::vector<int> threads = {1, 2};
  std::string isa = "auto";
  int num_heads = 9, num_kv_heads = 3, head_dim = 64, num_layers = 30, block_size = 64;
  int repetitions = 21;
  int queries = 1;  // tokens per step: more than one is a verification step
};

// Threads that spin at a barrier, as an inference loop's do.
class Team {
 public:
  explicit Team(int num_threads) : num_threads_(num_threads) {}
  void Run(const std::function<void(int)>& work) {
    std::vector<std::jthread> threads;
    for (int i = 1; i < num_threads_; ++i) threads.emplace_back(work, i);
    work(0);
  }
  void Wait() {
    const int generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) {
      if (spins > 2000) std::this_thread::yield();
    }
  }
  int size() const { return num_threads_; }

 private:
  int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> generation_{0};
};

// Times of the phases of every layer. A phase lasts from the first thread's begin to the last one's
// end: a thread that was off its core shows up as a long phase, never as a short one of its
// neighbour.
class Timer {
 public:
  Timer(int num_layers, int num_phases, int num_threads)
      : num_phases_(static_cast<size_t>(num_phases)),
        num_slots_(static_cast<size_t>(num_layers * num_phases)),
        best_(num_slots_, 1e9),
        marks_(static_cast<size_t>(num_threads), std::vector<Mark>(num_slots_)) {}

  void Time(int ith, int layer, int phase, const auto& work) {
    Mark& mark = marks_[static_cast<size_t>(ith)]
                       [static_cast<size_t>(layer) * num_phases_ + static_cast<size_t>(phase)];
    mark.begin = Clock::now();
    work();
    mark.end = Clock::now();
  }
  void EndRepetition() {
    Mark all = marks_[0][0];
    for (size_t slot = 0; slot < num_slots_; ++slot) {
      Mark phase = marks_[0][slot];
      for (const std::vector<Mark>& thread : marks_) {
        phase.begin = std::min(phase.begin, thread[slot].begin);
        phase.end = std::max(phase.end, thread[slot].end);
      }
      best_[slot] =
          std::min(best_[slot], std::chrono::duration<double>(phase.end - phase.begin).count());
      all.begin = std::min(all.begin, phase.begin);
      all.end = std::max(all.end, phase.end);
    }
    totals_.push_back(std::chrono::duration<double>(all.end - all.begin).count());
  }
  double BestSeconds(int phase) const {
    double sum = 0;
    for (size_t i = static_cast<size_t>(phase); i < num_slots_; i += num_phases_) sum += best_[i];
    return sum;
  }
  double MedianSeconds() const {
    std::vector<double> sorted = totals_;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

 private:
  struct Mark {
    Clock::time_point begin, end;
  };
  size_t num_phases_, num_slots_;
  std::vector<double> best_;
  std::vector<std::vector<Mark>> marks_;  // [threads][layers x phases]
  std::vector<double> totals_;
};

uint64_t SumWords(const uint8_t* bytes, size_t num_bytes) {
  constexpr size_t kChains = 8;
  const auto* words = reinterpret_cast<const uint64_t*>(bytes);
  uint64_t sums[kChains] = {};
  for (size_t i = 0; i < num_bytes / sizeof(uint64_t); i += kChains) {
    __builtin_prefetch(words + i + 512);
    for (size_t j = 0; j < kChains; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

class Cache {
 public:
  Cache(const Options& options, const std::string& format, const KernelTable& kernels, int depth,
        int max_threads)
      : options_(options) {
    std::vector<std::string> notes;
    const auto sides = ParseKvFormat(format, "", "", &notes);
    CHECK(sides.has_value());
    const KvCacheSpec spec = {.k = sides->k,
                              .v = sides->v,
                              .num_kv_heads = options.num_kv_heads,
                              .head_dim = options.head_dim,
                              .block_size = options.block_size};
    const int max_context = depth + options.queries;
    KvCacheConfig config;
    config.layers.assign(static_cast<size_t>(options.num_layers), spec);
    config.num_blocks = max_context / options.block_size + 1;
    config.max_num_seqs = 2;
    auto manager = KvCacheManager::Create(config);
    CHECK(manager.has_value());
    manager_ = std::move(*manager);
    const LayerAttentionParams params = {
        .num_heads = options.num_heads,
        .scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim))};
    attention_ = std::make_unique<PagedAttention>(
        manager_.get(), &kernels, std::vector(static_cast<size_t>(options.num_layers), params),
        AttentionLimits{.max_batch_tokens = 512,
                        .max_num_seqs = 1,
                        .max_context = max_context,
                        .max_threads = max_threads});
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto rows = size_t{512} * static_cast<size_t>(options.num_heads * options.head_dim);
    for (std::vector<float>* data : {&q_, &k_, &v_}) {
      data->resize(rows);
      for (float& x : *data) x = normal(random);
    }
    out_.resize(rows);
    sequence_ = *manager_->AddSequence();
    Fill(depth);
  }

  // Bytes of the closed blocks over all layers.
  size_t BlockBytes() const { return NumBlocks() * manager_->BytesPerBlockAllLayers(); }

  void DecodeStep(Team& team, Timer& timer) {
    // A fork for every repetition: the depth stays what it is.
    const SequenceId base = sequence_;
    sequence_ = *manager_->Fork(base);
    Begin(options_.queries);
    team.Run([&](int ith) {
      team.Wait();
      for (int layer = 0; layer < options_.num_layers; ++layer) {
        timer.Time(ith, layer, 0, [&] {
          attention_->StoreKv(layer, k_.data(), KvWidth(), v_.data(), KvWidth(), ith, team.size());
        });
        team.Wait();
        timer.Time(ith, layer, 1, [&] {
          attention_->Attend(layer, q_.data(), QWidth(), out_.data(), QWidth(), ith, team.size());
        });
        team.Wait();
        timer.Time(ith, layer, 2,
                   [&] { attention_->Merge(layer, out_.data(), QWidth(), ith, team.size()); });
        team.Wait();
      }
    });
    timer.EndRepetition();
    manager_->Free(sequence_);
    sequence_ = base;
  }

  void ReadBlocks(Team& team, Timer& timer) {
    std::vector<std::atomic<size_t>> next(static_cast<size_t>(options_.num_layers));
    std::atomic<uint64_t> sink{0};
    team.Run([&](int ith) {
      uint64_t sum = 0;
      team.Wait();
      for (int layer = 0; layer < options_.num_layers; ++layer) {
        timer.Time(ith, layer, 0,
                   [&] { sum += ReadLayer(layer, &next[static_cast<size_t>(layer)]); });
        team.Wait();
      }
      sink += sum;
    });
    timer.EndRepetition();
  }

 private:
  size_t KvWidth() const { return static_cast<size_t>(options_.num_kv_heads * options_.head_dim); }
  size_t QWidth() const { return static_cast<size_t>(options_.num_heads * options_.head_dim); }
  size_t NumBlocks() const {
    return static_cast<size_t>(manager_->NumTokens(sequence_) / options_.block_size);
  }
  uint64_t ReadLayer(int layer, std::atomic<size_t>* next) const {
    const PagedKvView view = manager_->View(layer, sequence_);
    constexpr size_t kBlocksAtOnce = 8;
    uint64_t sum = 0;
    for (size_t first; (first = next->fetch_add(kBlocksAtOnce)) < NumBlocks();) {
      for (size_t i = first; i < std::min(first + kBlocksAtOnce, NumBlocks()); ++i) {
        sum += SumWords(view.Block(i), view.bytes_per_block);
      }
    }
    return sum;
  }
  void Begin(int num_tokens) {
    const int start = manager_->NumTokens(sequence_);
    CHECK(manager_->AllocateSlots(sequence_, num_tokens));
    const SequenceChunk chunk = {
        .sequence = sequence_, .start = start, .num_tokens = num_tokens, .first_row = 0};
    attention_->BeginStep({&chunk, 1});
  }
  void Fill(int depth) {
    for (int done = 0; done < depth; done += 512) {
      Begin(std::min(512, depth - done));
      for (int layer = 0; layer < options_.num_layers; ++layer) {
        attention_->StoreKv(layer, k_.data(), KvWidth(), v_.data(), KvWidth(), 0, 1);
      }
      manager_->Commit(sequence_);
    }
  }

  Options options_;
  std::unique_ptr<KvCacheManager> manager_;
  std::unique_ptr<PagedAttention> attention_;
  SequenceId sequence_;
  std::vector<float> q_, k_, v_, out_;
};

void Measure(const Options& options, const KernelTable& kernels, int depth, int num_threads) {
  struct Case {
    std::string format;
    Cache cache;
    Timer attention, read;
  };
  std::vector<std::unique_ptr<Case>> cases;
  for (const std::string& format : options.formats) {
    cases.push_back(
        std::make_unique<Case>(Case{.format = format,
                                    .cache = Cache(options, format, kernels, depth, num_threads),
                                    .attention = Timer(options.num_layers, 3, num_threads),
                                    .read = Timer(options.num_layers, 1, num_threads)}));
  }
  Team team(num_threads);
  for (int i = 0; i < options.repetitions; ++i) {
    for (auto& c : cases) {  // interleaved: all formats meet the same disturbances, and push each
                             // other out of the caches
      c->cache.ReadBlocks(team, c->read);
      c->cache.DecodeStep(team, c->attention);
    }
  }
  for (auto& c : cases) {
    const double store = c->attention.BestSeconds(0), attend = c->attention.BestSeconds(1);
    const double merge = c->attention.BestSeconds(2), seconds = store + attend + merge;
    const double read = c->read.BestSeconds(0);
    const auto gigabytes = static_cast<double>(c->cache.BlockBytes()) * 1e-9;
    fmt::print(
        "{:>10} {:>6} {:>7} {:>8.1f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.2f} "
        "{:>8.2f} {:>6.1f}\n",
        c->format, depth, num_threads, 1e3 * gigabytes, 1e3 * seconds, 1e3 * store, 1e3 * attend,
        1e3 * merge, 1e3 * c->attention.MedianSeconds(), gigabytes / seconds, gigabytes / read,
        100 * read / seconds);
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times the attention of a decode step beside a streaming read of the same bytes");
  app.add_option("--formats", options.formats)->delimiter(',');
  app.add_option("--depths", options.depths)->delimiter(',');
  app.add_option("--threads", options.threads)->delimiter(',');
  app.add_option("--isa", options.isa);
  app.add_option("--heads", options.num_heads);
  app.add_option("--kv-heads", options.num_kv_heads);
  app.add_option("--head-dim", options.head_dim);
  app.add_option("--layers", options.num_layers);
  app.add_option("--block-size", options.block_size);
  app.add_option("--reps", options.repetitions);
  app.add_option("--queries", options.queries);
  CLI11_PARSE(app, argc, argv);
  const auto kernels = SelectKernels(options.isa);
  if (!kernels) {
    fmt::print(stderr, "{}\n", kernels.error().message);
    return 2;
  }
  for (const std::string& format : options.formats) {
    std::vector<std::string> notes;
    const auto sides = ParseKvFormat(format, "", "", &notes);
    if (!sides) {
      fmt::print(stderr, "{}\n", sides.error().message);
      return 2;
    }
    fmt::print("{}: {} {} {}\n", format, kernels->of(sides->k.dtype).qk_name,
               kernels->of(sides->v.dtype).pv_name, kernels->of(sides->k.dtype).encode_name);
  }
  fmt::print("{:>10} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}\n", "format",
             "depth", "threads", "MB", "ms", "store", "attend", "merge", "wall", "GB/s", "read",
             "share%");
  for (const int num_threads : options.threads) {
    for (const int depth : options.depths) Measure(options, *kernels, depth, num_threads);
  }
  return 0;
}

}  // namespace
}  // namespace turboquant

int main(int argc, char** argv) { return turboquant::Main(argc, argv); }
