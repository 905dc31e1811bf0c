// KvCacheManager under random operations, compared after each with a model that knows only token
// lists and shared pointers. Every byte that a sequence owns is written as StoreKv would and read
// back, so that a block or tail given to two owners shows.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "stress_seed.h"

namespace turboquant {
namespace {

constexpr int kBlockSize = 16;
constexpr int kNumBlocks = 40;
constexpr int kMaxSeqs = 9;
constexpr int kSinkTokens = 4;

// A closed block as the model sees it: alive as long as a sequence points to it.
struct ModelBlock {
  explicit ModelBlock(std::vector<int32_t> block_tokens, int* live_blocks)
      : tokens(std::move(block_tokens)), live(live_blocks) {
    ++*live;
  }
  ~ModelBlock() { --*live; }
  ModelBlock(const ModelBlock&) = delete;
  ModelBlock& operator=(const ModelBlock&) = delete;
  std::vector<int32_t> tokens;
  int* live;
};

struct ModelSequence {
  SequenceId id;
  std::vector<int32_t> tokens;
  std::vector<std::shared_ptr<ModelBlock>> blocks;
};

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// What stands in one token's share of a tail or sink tile, and all over a closed block.
uint64_t TokenWord(int layer, int32_t token) {
  return Mix(static_cast<uint64_t>(token) * 2 + static_cast<uint64_t>(layer));
}
uint64_t BlockWord(int layer, const std::vector<int32_t>& tokens) {
  uint64_t word = static_cast<uint64_t>(layer);
  for (const int32_t token : tokens) word = Mix(word + static_cast<uint64_t>(token));
  return word;
}

void Fill(uint8_t* data, size_t bytes, uint64_t word) {
  for (size_t i = 0; i + sizeof(word) <= bytes; i += sizeof(word))
    std::memcpy(data + i, &word, sizeof(word));
}
bool Holds(const uint8_t* data, size_t bytes, uint64_t word) {
  for (size_t i = 0; i + sizeof(word) <= bytes; i += sizeof(word)) {
    if (std::memcmp(data + i, &word, sizeof(word)) != 0) return false;
  }
  return true;
}

class Stress {
 public:
  explicit Stress(uint64_t seed) : random_(seed) {
    KvCacheSpec int8;
    int8.num_kv_heads = 1;
    int8.head_dim = 16;
    int8.block_size = kBlockSize;
    KvCacheSpec f16 = int8;
    f16.k = f16.v = {
        .dtype = KvCacheDtype::kF16, .granularity = ScaleGranularity::kNone, .group_size = 0};
    auto manager = KvCacheManager::Create({.layers = {int8, f16},
                                           .static_scales = {},
                                           .num_blocks = kNumBlocks,
                                           .max_num_seqs = kMaxSeqs,
                                           .num_sink_tokens = kSinkTokens});
    EXPECT_TRUE(manager) << manager.error().message;
    manager_ = std::move(*manager);
  }

  void Run(int steps) {
    for (step_ = 0; step_ < steps && !::testing::Test::HasFailure(); ++step_) {
      Step();
      ASSERT_EQ(manager_->NumFreeBlocks(), kNumBlocks - live_blocks_) << "step " << step_;
      if (step_ % 500 == 0) CheckAll();
    }
    CheckAll();
    while (!sequences_.empty()) Free(0);
    const KvCacheStats stats = manager_->Stats();
    EXPECT_EQ(stats.num_free_blocks, kNumBlocks);
    EXPECT_EQ(stats.sequence_bytes_used, 0u);
    EXPECT_EQ(live_blocks_, 0);
    // The run has been where it is meant to go.
    EXPECT_GT(num_refused_, steps / 100);
    EXPECT_GT(num_appends_, steps / 10);
    EXPECT_GT(num_forks_, steps / 100);
    EXPECT_GT(num_full_, 0);
    std::printf(
        "%d appends, %d refused for lack of blocks, %d forks, %d refused for lack of sequences\n",
        num_appends_, num_refused_, num_forks_, num_full_);
  }

 private:
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void Step() {
    // In the crowded phases the pool is mostly exhausted, in the others mostly not.
    const bool crowded = step_ / 1000 % 2 == 1;
    const int what = Uniform(0, 99);
    if (sequences_.empty() || what < 10) return Add();
    const auto index = static_cast<size_t>(Uniform(0, static_cast<int>(sequences_.size()) - 1));
    if (what < 60) return (void)Append(index, Uniform(1, Uniform(1, 60)));
    if (what < 70) return Fork(index);
    if (what < (crowded ? 78 : 88)) return Free(index);
    if (what < 90) return Abandon(index);
    if (what < 91 && crowded) return Exhaust(index);
    Check(sequences_[index]);
  }

  void Add() {
    const std::optional<SequenceId> id = manager_->AddSequence();
    ASSERT_EQ(id.has_value(), sequences_.size() < kMaxSeqs);
    if (!id) return (void)++num_full_;
    sequences_.push_back({.id = *id, .tokens = {}, .blocks = {}});
    ASSERT_EQ(manager_->NumTokens(*id), 0);
  }

  bool Append(size_t index, int num_tokens) {
    ModelSequence& sequence = sequences_[index];
    const auto old_size = static_cast<int>(sequence.tokens.size());
    const int closes = (old_size + num_tokens) / kBlockSize - old_size / kBlockSize;
    EXPECT_EQ(manager_->NumBlocksNeeded(sequence.id, num_tokens), closes);
    const bool fits = closes <= kNumBlocks - live_blocks_;
    EXPECT_EQ(manager_->AllocateSlots(sequence.id, num_tokens), fits) << "step " << step_;
    if (!fits) {
      ++num_refused_;
      return false;
    }
    for (int i = 0; i < num_tokens; ++i) sequence.tokens.push_back(next_token_++);
    for (int i = old_size / kBlockSize; i < (old_size + num_tokens) / kBlockSize; ++i) {
      const auto first = sequence.tokens.begin() + static_cast<ptrdiff_t>(i) * kBlockSize;
      sequence.blocks.push_back(std::make_shared<ModelBlock>(
          std::vector<int32_t>(first, first + kBlockSize), &live_blocks_));
    }
    ++num_appends_;
    Store(sequence, old_size);
    manager_->Commit(sequence.id);
    return true;
  }

  void Store(const ModelSequence& sequence, int old_size) {
    for (int layer = 0; layer < 2; ++layer) {
      const PagedKvView view = manager_->View(layer, sequence.id);
      ASSERT_EQ(view.blocks.size(), sequence.blocks.size());
      const size_t tail_share = view.tail_spec->BytesPerBlock() / kBlockSize;
      const size_t sink_share = view.sink_spec->BytesPerBlock() / kSinkTileTokens;
      for (auto t = static_cast<size_t>(old_size); t < sequence.tokens.size(); ++t) {
        const uint64_t word = TokenWord(layer, sequence.tokens[t]);
        Fill(view.tail + t % kBlockSize * tail_share, tail_share, word);
        if (t < static_cast<size_t>(view.num_sink_tokens))
          Fill(view.sinks + t * sink_share, sink_share, word);
      }
      for (auto b = static_cast<size_t>(old_size / kBlockSize); b < sequence.blocks.size(); ++b) {
        Fill(view.Block(b), view.bytes_per_block, BlockWord(layer, sequence.blocks[b]->tokens));
      }
    }
  }

  void Fork(size_t index) {
    const std::optional<SequenceId> id = manager_->Fork(sequences_[index].id);
    ASSERT_EQ(id.has_value(), sequences_.size() < kMaxSeqs);
    if (!id) return (void)++num_full_;
    ++num_forks_;
    ModelSequence child = sequences_[index];
    child.id = *id;
    sequences_.push_back(std::move(child));
    Check(sequences_.back());
  }

  void Free(size_t index) {
    manager_->Free(sequences_[index].id);
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(index));
  }

  // Ends a sequence whose reservation is still open.
  void Abandon(size_t index) {
    if (manager_->AllocateSlots(sequences_[index].id, Uniform(1, 40))) Free(index);
  }

  void Exhaust(size_t index) {
    while (Append(index, Uniform(1, 60)) && !::testing::Test::HasFailure()) {
    }
  }

  void Check(const ModelSequence& sequence) {
    ASSERT_EQ(manager_->NumTokens(sequence.id), static_cast<int>(sequence.tokens.size()));
    ASSERT_EQ(manager_->NumReservedTokens(sequence.id), 0);
    for (int layer = 0; layer < 2; ++layer) {
      const PagedKvView view = manager_->View(layer, sequence.id);
      ASSERT_EQ(view.blocks.size(), sequence.blocks.size());
      for (size_t b = 0; b < sequence.blocks.size(); ++b) {
        ASSERT_TRUE(Holds(view.Block(b), view.bytes_per_block,
                          BlockWord(layer, sequence.blocks[b]->tokens)))
            << "step " << step_ << ", sequence " << sequence.id.value << ", block " << b;
      }
      const size_t tail_share = view.tail_spec->BytesPerBlock() / kBlockSize;
      const size_t sink_share = view.sink_spec->BytesPerBlock() / kSinkTileTokens;
      for (size_t t = sequence.blocks.size() * kBlockSize; t < sequence.tokens.size(); ++t) {
        ASSERT_TRUE(Holds(view.tail + t % kBlockSize * tail_share, tail_share,
                          TokenWord(layer, sequence.tokens[t])))
            << "step " << step_ << ", sequence " << sequence.id.value << ", tail token " << t;
      }
      ASSERT_EQ(view.num_sink_tokens, layer == 0 && !sequence.tokens.empty() ? kSinkTokens : 0);
      for (size_t t = 0;
           t < std::min<size_t>(sequence.tokens.size(), static_cast<size_t>(view.num_sink_tokens));
           ++t) {
        ASSERT_TRUE(
            Holds(view.sinks + t * sink_share, sink_share, TokenWord(layer, sequence.tokens[t])))
            << "step " << step_ << ", sequence " << sequence.id.value << ", sink " << t;
      }
    }
  }

  void CheckAll() {
    size_t num_tokens = 0;
    for (const ModelSequence& sequence : sequences_) {
      Check(sequence);
      num_tokens += sequence.tokens.size();
    }
    const KvCacheStats stats = manager_->Stats();
    ASSERT_EQ(stats.num_tokens, static_cast<int64_t>(num_tokens));
    ASSERT_EQ(stats.num_sequences, static_cast<int>(sequences_.size()));
    ASSERT_EQ(stats.block_bytes_used,
              static_cast<size_t>(live_blocks_) * manager_->BytesPerBlockAllLayers());
  }

  std::mt19937_64 random_;
  std::unique_ptr<KvCacheManager> manager_;
  int live_blocks_ = 0;  // before sequences_, whose blocks count themselves out of it
  std::vector<ModelSequence> sequences_;
  int32_t next_token_ = 0;
  int step_ = 0, num_appends_ = 0, num_refused_ = 0, num_forks_ = 0, num_full_ = 0;
};

TEST(KvCacheStress, AgreesWithTheModel) {
  for (const uint64_t seed : StressSeeds()) {
    std::printf("seed %llu, %d steps\n", static_cast<unsigned long long>(seed), STRESS_STEPS);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Stress(seed).Run(STRESS_STEPS);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace turboquant
