// For tests: the same tokens give the same bits, whatever the chunks, the neighbours, the threads
// and the cut into units.
#ifndef TURBOQUANT_ATTENTION_ATTENTION_INVARIANCE_H_
#define TURBOQUANT_ATTENTION_ATTENTION_INVARIANCE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attention/attention_test_util.h"

namespace turboquant::attention_test {

using Outputs = std::vector<std::vector<float>>;  // [layer][rows * width]

inline void ExpectSameBits(const Outputs& expected, const Outputs& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t layer = 0; layer < expected.size(); ++layer) {
    ASSERT_EQ(expected[layer].size(), actual[layer].size());
    for (size_t i = 0; i < expected[layer].size(); ++i) {
      ASSERT_EQ(std::memcmp(&expected[layer][i], &actual[layer][i], sizeof(float)), 0)
          << "layer " << layer << " value " << i << ": " << expected[layer][i] << " and "
          << actual[layer][i];
    }
  }
}

// Feeds the sequence beside three others that prefill, decode and verify; outputs of the first one
// only.
inline Outputs FeedBesideOthers(Harness& harness, TestSequence* sequence, int num_tokens,
                                int chunk_tokens) {
  Outputs all(harness.options().layers.size());
  TestSequence others[3] = {harness.Add(101), harness.Add(102), harness.Add(103)};
  for (int done = 0, i = 0; done < num_tokens; done += chunk_tokens, ++i) {
    const int n = std::min(chunk_tokens, num_tokens - done);
    std::vector<StepChunk> step = {
        {&others[1], 1}, {sequence, n}, {&others[2], others[2].num_tokens < 300 ? 1 + i % 5 : 1}};
    if (i % 5 == 0 && others[0].num_tokens < 500)
      step.insert(step.begin(), {&others[0], 30 - i % 7});
    size_t first_row = 0;
    for (const StepChunk& chunk : step) {
      if (chunk.sequence == sequence) break;
      first_row += static_cast<size_t>(chunk.num_tokens);
    }
    const Outputs out = harness.Step(step);
    for (size_t layer = 0; layer < all.size(); ++layer) {
      const Geometry& geometry = harness.options().layers[layer];
      const auto width =
          static_cast<size_t>(geometry.num_kv_heads * geometry.group * geometry.head_dim);
      const auto begin = out[layer].begin() + static_cast<std::ptrdiff_t>(first_row * width);
      all[layer].insert(all[layer].end(), begin,
                        begin + static_cast<std::ptrdiff_t>(static_cast<size_t>(n) * width));
    }
  }
  return all;
}

inline HarnessOptions InvarianceOptions(const std::vector<Geometry>& layers, Isa isa,
                                        int num_threads, int max_threads) {
  return {.layers = layers,
          .isa = isa,
          .num_threads = num_threads,
          .max_threads = max_threads,
          .max_batch_tokens = 1600,
          .max_context = 4096,
          .num_blocks = 1000};
}

// One way to run a sequence: threads that work, threads that the plan is cut for, tokens per step,
// other sequences or none.
struct Way {
  int num_threads, max_threads, chunk_tokens;
  bool beside_others;
};

// Every way against one pass on one thread.
inline void ExpectInvariant(const std::vector<Geometry>& layers, Isa isa, int num_tokens,
                            const std::vector<Way>& ways) {
  SCOPED_TRACE(testing::Message() << Describe(layers[0]) << " isa " << Name(isa));
  const auto feed = [&](const Way& way) {
    Harness harness(InvarianceOptions(layers, isa, way.num_threads, way.max_threads));
    TestSequence sequence = harness.Add(42);
    return way.beside_others ? FeedBesideOthers(harness, &sequence, num_tokens, way.chunk_tokens)
                             : harness.Feed(&sequence, num_tokens, way.chunk_tokens);
  };
  const Outputs expected = feed({1, 1, num_tokens, false});
  for (const Way& way : ways) {
    SCOPED_TRACE(testing::Message()
                 << way.num_threads << " threads, cut for " << way.max_threads << ", chunks of "
                 << way.chunk_tokens << (way.beside_others ? ", beside others" : ", alone"));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, feed(way)));
  }
}

}  // namespace turboquant::attention_test

#endif  // TURBOQUANT_ATTENTION_ATTENTION_INVARIANCE_H_
