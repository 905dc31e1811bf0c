#include <cmath>
#include <random>
#include <vector>

#include "attention/paged_attention.h"
#include "base/check.h"
#include "bench/attention/contender.h"
#include "cache/kv_cache_manager.h"

namespace turboquant::bench {
namespace {

constexpr int kFillTokens = 512;  // per step while the cache is filled

class OurAttention final : public Contender {
 public:
  OurAttention(const Shape& shape, const std::string& format, const KernelTable& kernels,
               int num_threads)
      : shape_(shape) {
    const auto sides = ParseKvFormat(format, "", "", nullptr);
    CHECK(sides.has_value());
    const KvCacheSpec spec = {.k = sides->k,
                              .v = sides->v,
                              .num_kv_heads = shape.num_kv_heads,
                              .head_dim = shape.head_dim,
                              .block_size = shape.block_size};
    engine = "turboquant";
    k = Name(spec.k.dtype);
    v = Name(spec.v.dtype);
    isa = Name(kernels.isa);
    integer = IsInteger(spec.k.dtype) && IsInteger(spec.v.dtype);
    const int copies = shape.shared ? 1 : shape.sequences;
    const int blocks = shape.Depth() / shape.block_size * copies;
    num_layers = shape.NumLayers(static_cast<size_t>(blocks) * spec.BytesPerBlock());
    cache_bytes =
        static_cast<size_t>(blocks) * spec.BytesPerBlock() * static_cast<size_t>(num_layers);
    MakeCache(spec, kernels, num_threads);
    ShuffleFreeBlocks();
    Fill();
  }

  double Run(Team& team) override {
    attention_->BeginStep(chunks_);
    return team.Time([&](int ith) {
      for (int layer = 0; layer < num_layers; ++layer) {
        attention_->Attend(layer, q_.data(), QWidth(), out_.data(), QWidth(), ith, team.size());
        team.Barrier();
        attention_->Merge(layer, out_.data(), QWidth(), ith, team.size());
        team.Barrier();
      }
    });
  }

 private:
  size_t KvWidth() const { return static_cast<size_t>(shape_.num_kv_heads * shape_.head_dim); }
  size_t QWidth() const { return static_cast<size_t>(shape_.NumHeads() * shape_.head_dim); }

  void MakeCache(const KvCacheSpec& spec, const KernelTable& kernels, int num_threads) {
    const int max_context = shape_.Depth() + shape_.queries;
    const int batch = std::max(kFillTokens, shape_.queries * shape_.sequences);
    KvCacheConfig config;
    config.layers.assign(static_cast<size_t>(num_layers), spec);
    config.num_blocks = (max_context / spec.block_size + 1) * shape_.sequences;
    config.max_num_seqs = std::max(kShufflers, shape_.sequences);
    auto manager = KvCacheManager::Create(std::move(config));
    CHECK(manager.has_value());
    manager_ = *std::move(manager);
    const LayerAttentionParams params = {
        .num_heads = shape_.NumHeads(),
        .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim))};
    attention_ = std::make_unique<PagedAttention>(
        manager_.get(), &kernels, std::vector(static_cast<size_t>(num_layers), params),
        AttentionLimits{.max_batch_tokens = batch,
                        .max_num_seqs = shape_.sequences,
                        .max_context = max_context,
                        .max_threads = num_threads});
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto rows = static_cast<size_t>(batch);
    q_.resize(rows * QWidth());
    out_.resize(rows * QWidth());
    k_.resize(rows * KvWidth());
    v_.resize(rows * KvWidth());
    for (std::vector<float>* data : {&q_, &k_, &v_}) {
      for (float& x : *data) x = normal(random);
    }
  }

  // Sequences that take blocks in random turns and are freed leave the free list in disorder, as
  // a server's requests do.
  void ShuffleFreeBlocks() {
    std::mt19937 random(2);
    for (int round = 0; round < 3; ++round) {
      std::vector<SequenceId> sequences;
      for (int i = 0; i < kShufflers; ++i) sequences.push_back(*manager_->AddSequence());
      while (manager_->NumFreeBlocks() > 0) {
        const SequenceId sequence = sequences[random() % kShufflers];
        CHECK(manager_->AllocateSlots(sequence, shape_.block_size));
        manager_->Commit(sequence);
      }
      std::ranges::shuffle(sequences, random);
      for (const SequenceId sequence : sequences) manager_->Free(sequence);
    }
  }

  void Reserve(std::span<const SequenceId> sequences, int num_tokens) {
    chunks_.clear();
    for (const SequenceId sequence : sequences) {
      chunks_.push_back({.sequence = sequence,
                         .start = manager_->NumTokens(sequence),
                         .num_tokens = num_tokens,
                         .first_row = static_cast<int>(chunks_.size()) * num_tokens});
      CHECK(manager_->AllocateSlots(sequence, num_tokens));
    }
    attention_->BeginStep(chunks_);
    for (int layer = 0; layer < num_layers; ++layer) {
      attention_->StoreKv(layer, k_.data(), KvWidth(), v_.data(), KvWidth(), 0, 1);
    }
  }

  // Sequences of Depth() tokens whose next tokens are stored but never committed, so that every
  // Run attends to the same.
  void Fill() {
    std::vector<SequenceId> sequences;
    for (int i = 0; i < (shape_.shared ? 1 : shape_.sequences); ++i) {
      sequences.push_back(*manager_->AddSequence());
      for (int done = 0; done < shape_.Depth(); done += kFillTokens) {
        Reserve({&sequences.back(), 1}, std::min(kFillTokens, shape_.Depth() - done));
        manager_->Commit(sequences.back());
      }
    }
    while (static_cast<int>(sequences.size()) < shape_.sequences) {
      sequences.push_back(*manager_->Fork(sequences.front()));
    }
    Reserve(sequences, shape_.queries);
  }

  static constexpr int kShufflers = 64;

  const Shape shape_;
  std::unique_ptr<KvCacheManager> manager_;
  std::unique_ptr<PagedAttention> attention_;
  std::vector<SequenceChunk> chunks_;
  std::vector<float> q_, k_, v_, out_;
};

}  // namespace

std::unique_ptr<Contender> MakeOurs(const Shape& shape, const std::string& format,
                                    const KernelTable& kernels, int num_threads) {
  return std::make_unique<OurAttention>(shape, format, kernels, num_threads);
}

}  // namespace turboquant::bench
