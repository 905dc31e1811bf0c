// What attention holds does not grow with the context, and a step allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "attention/attention_reference.h"
#include "attention/attention_test_util.h"
#include "attention/step_plan.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace turboquant {
namespace {

using attention_test::Geometry;
using attention_test::Harness;
using attention_test::HarnessOptions;
using attention_test::Reference;
using attention_test::StepChunk;
using attention_test::TestSequence;

constexpr int kLongContext = 64 * 1024;
constexpr Isa kIsa = Isa::kScalar;

HarnessOptions Options(int max_context, int num_threads) {
  return {.layers = {{.num_kv_heads = 1, .group = 3, .head_dim = 64, .block_size = 64}},
          .isa = kIsa,
          .num_threads = num_threads,
          .max_num_seqs = 1,
          .max_batch_tokens = 512,
          .max_context = max_context,
          .num_blocks = kLongContext / 64 + 16};
}

TEST(AttentionMemoryTest, ScratchIsThatOfATileWhateverTheContext) {
  for (const int num_threads : {1, 2, 8}) {
    Harness small(Options(1024, num_threads)), large(Options(1024 * 1024, num_threads));
    const size_t scratch = large.attention().scratch_bytes_per_thread();
    EXPECT_EQ(scratch, small.attention().scratch_bytes_per_thread());
    // Rows of a unit: query, two states; rotated queries and scores of a tile.
    const size_t rows = 32, head_dim = 64;
    EXPECT_LE(scratch, rows * (PreparedQBytes(64, 64) + 2 * (head_dim + 2) * sizeof(float)) +
                           kMaxTileRows * (head_dim + kMaxTileTokens) * sizeof(float) + 1024);
    // One thread with one sequence keeps no partial states; more keep (context / kSplitTokens + 1)
    // of a few rows.
    const size_t growth = large.attention().shared_bytes() - small.attention().shared_bytes();
    const size_t num_states =
        size_t{1024 * 1024 - 1024} / kSplitTokens * 4 * static_cast<size_t>(num_threads);
    EXPECT_LE(growth, num_threads == 1
                          ? 0
                          : num_states * (3 * (head_dim + 2) * sizeof(float) + sizeof(AttendUnit)));
  }
}

TEST(AttentionMemoryTest, SixtyFourThousandTokensWithinFixedMemory) {
  for (const int num_threads : {1, 2}) {
    SCOPED_TRACE(num_threads);
    Harness harness(Options(kLongContext + 64, num_threads));
    PagedAttention& attention = harness.attention();
    const size_t shared = attention.shared_bytes();
    TestSequence sequence = harness.Add(1);
    while (sequence.num_tokens < kLongContext - 1) {
      harness.StoreOnly(&sequence, std::min(512, kLongContext - 1 - sequence.num_tokens));
    }
    std::vector<std::vector<float>> out;
    for (const int num_tokens : {1, 1, 5}) out = harness.Step({{&sequence, num_tokens}});
    EXPECT_EQ(attention.shared_bytes(), shared);

    const Reference reference(harness, sequence, 0);
    const int last = sequence.num_tokens - 1;
    for (int head = 0; head < 3; ++head) {
      const Reference::Row expected = reference.Attend(last, head);
      for (size_t c = 0; c < 64; ++c) {
        const float actual = out[0][out[0].size() - static_cast<size_t>(3 - head) * 64 + c];
        ASSERT_LE(std::fabs(static_cast<double>(actual) - expected.out[c]), expected.bound[c])
            << head << ' ' << c;
      }
    }
  }
}

TEST(AttentionMemoryTest, StepsAllocateNothing) {
  HarnessOptions options = Options(8192, 2);
  options.max_num_seqs = 3;
  Harness harness(options);
  TestSequence a = harness.Add(1), b = harness.Add(2);
  harness.StoreOnly(&a, 500);
  harness.StoreOnly(&a, 500);
  TestSequence c = harness.Fork(a, 3);
  const std::vector<std::vector<StepChunk>> steps = {{{&a, 1}},          {{&a, 30}, {&b, 400}},
                                                     {{&a, 5}, {&b, 1}}, {{&b, 500}},
                                                     {{&a, 1}, {&b, 1}}, {{&a, 1}, {&c, 1}}};
  std::vector<float> out(512 * 3 * 64);
  for (const std::vector<StepChunk>& step : steps) {
    std::vector<SequenceChunk> chunks;
    for (const StepChunk& chunk : step) {
      ASSERT_TRUE(harness.manager().AllocateSlots(chunk.sequence->id, chunk.num_tokens));
      chunks.push_back({.sequence = chunk.sequence->id,
                        .start = chunk.sequence->num_tokens,
                        .num_tokens = chunk.num_tokens,
                        .first_row = chunks.empty() ? 0 : chunks[0].num_tokens});
    }
    PagedAttention& attention = harness.attention();
    const int64_t before = num_allocations.load();
    attention.BeginStep(chunks);
    for (int ith = 0; ith < 2; ++ith) attention.StoreKv(0, out.data(), 64, out.data(), 64, ith, 2);
    for (int ith = 0; ith < 2; ++ith) attention.Attend(0, out.data(), 192, out.data(), 192, ith, 2);
    for (int ith = 0; ith < 2; ++ith) attention.Merge(0, out.data(), 192, ith, 2);
    EXPECT_EQ(num_allocations.load(), before);
    for (const StepChunk& chunk : step) {
      harness.manager().Commit(chunk.sequence->id);
      chunk.sequence->num_tokens += chunk.num_tokens;
    }
  }
}

}  // namespace
}  // namespace turboquant
