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

INSTANTIATE_TEST_SUITE_P(
    Formats, AttentionFormatInvarianceTest,
    testing::Values(OfFormat("f32", ""), OfFormat("f16", ""), OfFormat("bf16", ""),
                    OfFormat("int8", ""), OfFormat("int8", "per_channel"),
                    OfFormat("int8", "per_head"), OfFormat("int8", "per_block"),
                    OfFormat("fp8_e4m3", ""), OfFormat("fp8_e5m2", "per_token_head"),
                    OfFormat("int4", ""), OfFormat("int6/int3", ""), OfFormat("int5/int2", ""),
                    OfFormat("int4_sym", ""), OfFormat("int4_sym", "per_group:32"),
                    OfFormat("int4_asym", "per_group:32")));

INSTANTIATE_TEST_SUITE_P(RecentTokens, AttentionFormatInvarianceTest,
                         testing::Values(Geometry{.format = "int4",
                                                  .num_kv_heads = 2,
                                                  .group = 3,
                                                  .head_dim = 32,
                                                  .num_recent_tokens = 128},
                                         Geometry{.format = "int6/int3",
                                                  .transform = "balanced",
                                                  .num_kv_heads = 1,
                                                  .group = 2,
                                                  .head_dim = 48,
                                                  .num_recent_tokens = 32},
                                         Geometry{.format = "int8/int4",
                                                  .num_kv_heads = 1,
                                                  .group = 40,
                                                  .head_dim = 16,
                                                  .num_recent_tokens = 1024,
                                                  .sliding_window = 300}));

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
  const Geometry plain = {.num_kv_heads = 1, .group = 3, .head_dim = 32};
  Geometry recent = plain;
  recent.format = "int4";
  recent.num_recent_tokens = 96;
  for (const Isa isa : AvailableIsas()) {
    for (const Geometry& geometry : {plain, recent}) {
      Harness harness(InvarianceOptions({geometry}, isa, 1, 2));
      TestSequence parent = harness.Add(42);
      harness.Feed(&parent, 530, 100);
      TestSequence child = harness.Fork(parent, 42);
      const Outputs expected = harness.Feed(&parent, 150, 64);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, harness.Feed(&child, 150, 1)));
    }
  }
}

// Forks that decode in one step read what they have in common once; each gets the bits that it
// would get alone. The second fork leaves the others within the first split's last block.
void ExpectSharedPrefixChangesNothing(const Geometry& geometry, Isa isa, int num_threads) {
  SCOPED_TRACE(testing::Message() << attention_test::Describe(geometry) << " isa " << Name(isa)
                                  << " threads " << num_threads);
  constexpr int kEarly = kSplitTokens - 8, kShared = 2 * kSplitTokens + 20, kSteps = 6;
  Harness harness(InvarianceOptions({geometry}, isa, num_threads, num_threads));
  TestSequence parent = harness.Add(42);
  harness.Feed(&parent, kEarly, 200);
  TestSequence early = harness.Fork(parent, 7);
  harness.Feed(&early, kShared - kEarly, 200);
  harness.Feed(&parent, kShared - kEarly, 200);
  TestSequence forks[2] = {harness.Fork(parent, 8), harness.Fork(parent, 9)};
  const std::vector<StepChunk> step = {{&early, 1}, {&forks[0], 3}, {&parent, 1}, {&forks[1], 2}};
  std::vector<std::vector<float>> together(step.size());
  const auto width =
      static_cast<size_t>(geometry.num_kv_heads * geometry.group * geometry.head_dim);
  for (int i = 0; i < kSteps; ++i) {
    const Outputs out = harness.Step(step);
    auto row = out[0].begin();
    for (size_t c = 0; c < step.size(); ++c) {
      const auto end =
          row + static_cast<std::ptrdiff_t>(static_cast<size_t>(step[c].num_tokens) * width);
      together[c].insert(together[c].end(), row, end);
      row = end;
    }
  }
  for (size_t c = 0; c < step.size(); ++c) {
    SCOPED_TRACE(c);
    Harness clean(InvarianceOptions({geometry}, isa, 1, 1));
    TestSequence alone = clean.Add(0);
    alone.seeds = step[c].sequence->seeds;
    clean.Feed(&alone, kShared, 200);
    const Outputs expected = clean.Feed(&alone, kSteps * step[c].num_tokens, step[c].num_tokens);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, {together[c]}));
  }
}

TEST(AttentionInvarianceTest, SharedPrefix) {
  const std::vector<Geometry> geometries = {
      {.num_kv_heads = 2, .group = 3, .head_dim = 32, .block_size = 16},
      {.format = "int4_asym", .num_kv_heads = 1, .group = 8, .head_dim = 16, .block_size = 64},
      {.format = "f16", .num_kv_heads = 1, .group = 1, .head_dim = 32, .block_size = 256},
      {.format = "fp8_e4m3", .num_kv_heads = 3, .group = 2, .head_dim = 16, .sliding_window = 700},
      {.format = "int8", .num_kv_heads = 1, .group = 40, .head_dim = 16, .block_size = 64},
      {.format = "int4", .num_kv_heads = 1, .group = 2, .head_dim = 32, .num_recent_tokens = 256}};
  for (const Isa isa : AvailableIsas()) {
    for (const Geometry& geometry : geometries) {
      ExpectSharedPrefixChangesNothing(geometry, isa, isa == Isa::kScalar ? 2 : 1);
      if (HasFatalFailure()) return;
    }
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
