// The same tokens give the same bits, whatever the chunks, the neighbours, the threads and the cut
// into units.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "attention/attention_test_util.h"

namespace turboquant {
namespace {

using attention_test::AvailableIsas;
using attention_test::Geometry;
using attention_test::Harness;
using attention_test::HarnessOptions;
using attention_test::StepChunk;
using attention_test::TestSequence;

using Outputs = std::vector<std::vector<float>>;  // [layer][rows * width]

void ExpectSameBits(const Outputs& expected, const Outputs& actual) {
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
Outputs FeedBesideOthers(Harness& harness, TestSequence* sequence, int num_tokens,
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

HarnessOptions Options(const std::vector<Geometry>& layers, Isa isa, int num_threads,
                       int max_threads) {
  return {.layers = layers,
          .isa = isa,
          .num_threads = num_threads,
          .max_threads = max_threads,
          .max_batch_tokens = 800,
          .max_context = 4096,
          .num_blocks = 1000};
}

void ExpectInvariant(const std::vector<Geometry>& layers, Isa isa, int num_tokens) {
  SCOPED_TRACE(testing::Message() << layers[0].format << ' ' << layers[0].granularity << " block "
                                  << layers[0].block_size << " group " << layers[0].group << " isa "
                                  << Name(isa));
  const auto feed = [&](int num_threads, int max_threads, int chunk_tokens, bool beside_others) {
    Harness harness(Options(layers, isa, num_threads, max_threads));
    TestSequence sequence = harness.Add(42);
    return beside_others ? FeedBesideOthers(harness, &sequence, num_tokens, chunk_tokens)
                         : harness.Feed(&sequence, num_tokens, chunk_tokens);
  };
  const Outputs expected = feed(1, 1, 800, false);
  for (const int chunk_tokens : {512, 100, 1}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, feed(1, 1, chunk_tokens, false)));
    SCOPED_TRACE("beside others, on two threads");
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, feed(2, 2, chunk_tokens, true)));
  }
  for (const int num_threads : {2, 3}) {
    SCOPED_TRACE(testing::Message() << num_threads << " threads");
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, feed(num_threads, num_threads, 800, false)));
  }
  SCOPED_TRACE("cut for twelve threads, run on three");
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, feed(3, 12, 7, false)));
}

struct Format {
  const char* dtype;
  const char* granularity;
};

class AttentionInvarianceTest : public testing::TestWithParam<Format> {};

TEST_P(AttentionInvarianceTest, ChunksNeighboursAndThreads) {
  const Geometry geometry = {.format = GetParam().dtype,
                             .granularity = GetParam().granularity,
                             .num_kv_heads = 1,
                             .group = 3,
                             .head_dim = 32};
  for (const Isa isa : AvailableIsas()) {
    ExpectInvariant({geometry}, isa, 650);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionInvarianceTest,
                         testing::Values(Format{"f32", ""}, Format{"f16", ""}, Format{"bf16", ""},
                                         Format{"int8", ""}, Format{"int8", "per_channel"},
                                         Format{"fp8_e4m3", ""},
                                         Format{"fp8_e5m2", "per_token_head"}, Format{"int4", ""},
                                         Format{"int4", "per_group:32"},
                                         Format{"int4_asym", "per_group:32"}));

TEST(AttentionInvarianceTest, ShapesWindowsAndCaps) {
  const std::vector<Geometry> geometries = {
      {.num_kv_heads = 2, .group = 1, .head_dim = 16, .block_size = 16},
      {.num_kv_heads = 1, .group = 8, .head_dim = 48, .block_size = 64},
      {.num_kv_heads = 1, .group = 40, .head_dim = 16, .block_size = 128},
      {.num_kv_heads = 1, .group = 2, .head_dim = 80, .block_size = 256, .num_sink_tokens = 16},
      {.num_kv_heads = 1, .group = 2, .head_dim = 32, .block_size = 16, .sliding_window = 40},
      {.num_kv_heads = 2,
       .group = 3,
       .head_dim = 32,
       .block_size = 32,
       .num_sink_tokens = 0,
       .sliding_window = 300},
      {.num_kv_heads = 1,
       .group = 4,
       .head_dim = 32,
       .block_size = 32,
       .logit_softcap = 3,
       .query_gain = 4},
  };
  for (const Isa isa : AvailableIsas()) {
    for (const Geometry& geometry : geometries) {
      ExpectInvariant({geometry}, isa, 600);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionInvarianceTest, MixedLayers) {
  for (const Isa isa : AvailableIsas()) {
    ExpectInvariant(
        {{.format = "int8", .num_kv_heads = 1, .group = 2, .head_dim = 32},
         {.format = "f32", .num_kv_heads = 2, .group = 2, .head_dim = 16, .sliding_window = 70},
         {.format = "f16/int4", .num_kv_heads = 1, .group = 4, .head_dim = 32}},
        isa, 560);
  }
}

TEST(AttentionInvarianceTest, ForkGivesTheBitsOfASequenceOfItsOwn) {
  const std::vector<Geometry> layers = {{.num_kv_heads = 1, .group = 3, .head_dim = 32}};
  for (const Isa isa : AvailableIsas()) {
    Harness harness(Options(layers, isa, 2, 2));
    TestSequence parent = harness.Add(42);
    harness.Feed(&parent, 530, 100);
    TestSequence child = harness.Fork(parent, 42);
    const Outputs expected = harness.Feed(&parent, 150, 64);
    ExpectSameBits(expected, harness.Feed(&child, 150, 1));
  }
}

// Memory of sequences that were freed is used again, whatever they had stored; other sequences of
// the step do not matter.
TEST(AttentionInvarianceTest, ForeignValuesThatAreNotFiniteStayOutside) {
  const Geometry geometry = {.num_kv_heads = 1, .group = 2, .head_dim = 32, .block_size = 16};
  constexpr size_t kWidth = 2 * 32;
  for (const Isa isa : AvailableIsas()) {
    Harness clean(Options({geometry}, isa, 1, 1));
    TestSequence alone = clean.Add(42);
    const Outputs expected = clean.Feed(&alone, 50, 10);

    Harness harness(Options({geometry}, isa, 1, 1));
    std::vector<float> bad(100 * kWidth, NAN);
    for (size_t i = 0; i < bad.size(); i += 3) bad[i] = i % 2 == 0 ? INFINITY : -INFINITY;
    std::vector<float> out(bad.size());
    TestSequence poison = harness.Add(1);
    const std::vector<StepChunk> step = {{&poison, 100}};
    harness.Begin(step);
    harness.attention().StoreKv(0, bad.data(), kWidth, bad.data(), kWidth, 0, 1);
    harness.attention().Attend(0, bad.data(), kWidth, out.data(), kWidth, 0, 1);
    harness.attention().Merge(0, out.data(), kWidth, 0, 1);
    harness.manager().Commit(poison.id);
    harness.manager().Free(poison.id);

    TestSequence again = harness.Add(42);
    ExpectSameBits(expected, harness.Feed(&again, 50, 10));
  }
}

}  // namespace
}  // namespace turboquant
