// Bit-for-bit: chunks, neighbours, threads, cuts. attention_slow_test.cc does the same at length.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/attention_invariance.h"
#include "attention/attention_test_util.h"

namespace turboquant {
namespace {

using attention_test::AvailableIsas;
using attention_test::ExpectInvariant;
using attention_test::ExpectSameBits;
using attention_test::Geometry;
using attention_test::Harness;
using attention_test::InvarianceOptions;
using attention_test::Outputs;
using attention_test::StepChunk;
using attention_test::TestSequence;
using attention_test::Way;

constexpr int kTokens = kSplitTokens + 40;  // the last queries merge two splits and an exact part

const std::vector<Way>& Ways() {
  static const std::vector<Way> ways = {
      {1, 1, 1, false}, {2, 2, 100, true}, {3, 3, kTokens, false}, {3, 12, 50, false}};
  return ways;
}

class AttentionFormatInvarianceTest : public testing::TestWithParam<Geometry> {};

TEST_P(AttentionFormatInvarianceTest, ChunksNeighboursAndThreads) {
  for (const Isa isa : AvailableIsas()) {
    ExpectInvariant({GetParam()}, isa, kTokens, Ways());
    if (HasFatalFailure()) return;
  }
}

Geometry OfFormat(const char* format, const char* granularity) {
  return {
      .format = format, .granularity = granularity, .num_kv_heads = 1, .group = 3, .head_dim = 32};
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionFormatInvarianceTest,
                         testing::Values(OfFormat("f32", ""), OfFormat("f16", ""),
                                         OfFormat("bf16", ""), OfFormat("int8", ""),
                                         OfFormat("int8", "per_channel"), OfFormat("fp8_e4m3", ""),
                                         OfFormat("fp8_e5m2", "per_token_head"),
                                         OfFormat("int4", ""), OfFormat("int4", "per_group:32"),
                                         OfFormat("int4_asym", "per_group:32")));

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionFormatInvarianceTest,
    testing::Values(
        Geometry{.num_kv_heads = 2, .group = 1, .head_dim = 16, .block_size = 16},
        Geometry{.num_kv_heads = 1, .group = 8, .head_dim = 48, .block_size = 64},
        Geometry{.num_kv_heads = 1, .group = 40, .head_dim = 16, .block_size = 128},
        Geometry{.num_kv_heads = 1,
                 .group = 2,
                 .head_dim = 80,
                 .block_size = 256,
                 .num_sink_tokens = 16},
        Geometry{
            .num_kv_heads = 1, .group = 2, .head_dim = 32, .block_size = 16, .sliding_window = 40},
        Geometry{.num_kv_heads = 2,
                 .group = 3,
                 .head_dim = 32,
                 .num_sink_tokens = 0,
                 .sliding_window = 300},
        Geometry{
            .num_kv_heads = 1, .group = 4, .head_dim = 32, .logit_softcap = 3, .query_gain = 4}));

TEST(AttentionInvarianceTest, MixedLayers) {
  for (const Isa isa : AvailableIsas()) {
    ExpectInvariant(
        {{.format = "int8", .num_kv_heads = 1, .group = 2, .head_dim = 32},
         {.format = "f32", .num_kv_heads = 2, .group = 2, .head_dim = 16, .sliding_window = 70},
         {.format = "f16/int4", .num_kv_heads = 1, .group = 4, .head_dim = 32}},
        isa, kTokens, Ways());
  }
}

TEST(AttentionInvarianceTest, ForkGivesTheBitsOfASequenceOfItsOwn) {
  const std::vector<Geometry> layers = {{.num_kv_heads = 1, .group = 3, .head_dim = 32}};
  for (const Isa isa : AvailableIsas()) {
    Harness harness(InvarianceOptions(layers, isa, 1, 2));
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
    Harness clean(InvarianceOptions({geometry}, isa, 1, 1));
    TestSequence alone = clean.Add(42);
    const Outputs expected = clean.Feed(&alone, 50, 10);

    Harness harness(InvarianceOptions({geometry}, isa, 1, 1));
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
