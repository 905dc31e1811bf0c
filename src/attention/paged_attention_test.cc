// Attention against the double-precision reference: formats, shapes, windows, soft caps, mixed
// batches, every ISA.
#include "attention/paged_attention.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "attention/attention_reference.h"
#include "attention/attention_test_util.h"
#include "codec/block_scale.h"

namespace turboquant {
namespace {

using attention_test::AvailableIsas;
using attention_test::Describe;
using attention_test::Geometry;
using attention_test::Harness;
using attention_test::HarnessOptions;
using attention_test::Reference;
using attention_test::StepChunk;
using attention_test::TestSequence;

// Rows of a chunk that are compared: all of a short one, else a sample that holds block ends, their
// neighbours and the last.
std::vector<int> SampledRows(int num_tokens) {
  std::vector<int> rows;
  for (int row = 0; row < num_tokens; ++row) {
    if (num_tokens <= 8 || row % 16 <= 1 || row % 16 == 15 || row + 1 == num_tokens)
      rows.push_back(row);
  }
  return rows;
}

// `out`: [rows of the whole step][num_heads * head_dim] of one layer, after the step's Commit.
void ExpectMatchesReference(Harness& harness, const std::vector<StepChunk>& step, int layer,
                            const std::vector<float>& out) {
  const Geometry& geometry = harness.options().layers[static_cast<size_t>(layer)];
  const int num_heads = geometry.num_kv_heads * geometry.group;
  int first_row = 0;
  for (const StepChunk& chunk : step) {
    const Reference reference(harness, *chunk.sequence, layer);
    ASSERT_TRUE(reference.BlocksAreEncodedExactValues());
    for (const int row : SampledRows(chunk.num_tokens)) {
      const int position = chunk.sequence->num_tokens - chunk.num_tokens + row;
      for (int head = 0; head < num_heads; ++head) {
        const Reference::Row expected = reference.Attend(position, head);
        const float* actual =
            out.data() +
            static_cast<std::ptrdiff_t>((first_row + row) * num_heads + head) * geometry.head_dim;
        for (int c = 0; c < geometry.head_dim; ++c) {
          const auto channel = static_cast<size_t>(c);
          const double error = std::fabs(static_cast<double>(actual[c]) - expected.out[channel]);
          ASSERT_LE(error, expected.bound[channel])  // false for NaN
              << "position " << position << " head " << head << " channel " << c << ": "
              << actual[c] << ", expected " << expected.out[channel];
        }
      }
    }
    first_row += chunk.num_tokens;
  }
}

void RunStep(Harness& harness, const std::vector<StepChunk>& step) {
  const auto out = harness.Step(step);
  for (size_t layer = 0; layer < out.size(); ++layer) {
    SCOPED_TRACE(testing::Message() << "layer " << layer);
    ExpectMatchesReference(harness, step, static_cast<int>(layer), out[layer]);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Prefill, decode and verification of three sequences, mixed in one step, with chunks that end
// inside, at and beyond block ends.
void RunMixedBatches(const HarnessOptions& options) {
  Harness harness(options);
  const int block = options.layers[0].block_size;
  TestSequence a = harness.Add(1), b = harness.Add(2), c = harness.Add(3);
  const std::vector<std::vector<StepChunk>> steps = {
      {{&a, 2 * block + 3}, {&b, 1}},
      {{&a, 1}, {&b, 5}, {&c, block}},
      {{&c, 2}, {&a, block - 4}, {&b, block - 6}},  // a and b end exactly at a block end
      {{&b, 1}, {&a, 8}, {&c, 3 * block}},
      {{&a, 1}, {&b, 1}, {&c, 1}},
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "step " << i);
    RunStep(harness, steps[i]);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void ExpectMatchesOnEveryIsa(const Geometry& geometry) {
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(testing::Message() << Describe(geometry) << " isa " << Name(isa));
    RunMixedBatches({.layers = {geometry}, .isa = isa, .num_threads = 2});
    if (testing::Test::HasFatalFailure()) return;
  }
}

struct Format {
  const char* dtype;
  const char* granularity;
};
void PrintTo(const Format& format, std::ostream* out) {
  *out << format.dtype << ' ' << format.granularity;
}

class PagedAttentionFormatTest : public testing::TestWithParam<Format> {};

TEST_P(PagedAttentionFormatTest, MatchesReference) {
  ExpectMatchesOnEveryIsa({.format = GetParam().dtype, .granularity = GetParam().granularity});
}

TEST_P(PagedAttentionFormatTest, MatchesReferenceWhereAttentionIsPeaked) {
  ExpectMatchesOnEveryIsa({.format = GetParam().dtype,
                           .granularity = GetParam().granularity,
                           .group = 3,
                           .block_size = 64,
                           .query_gain = 2});
}

INSTANTIATE_TEST_SUITE_P(
    Formats, PagedAttentionFormatTest,
    testing::Values(Format{"f32", ""}, Format{"f16", ""}, Format{"bf16", ""},
                    Format{"int8", "per_token_head"}, Format{"int8", "per_group:32"},
                    Format{"int8", "per_tensor"}, Format{"int8", "per_head"},
                    Format{"int8", "per_channel"}, Format{"int8", "per_head:fixed"},
                    Format{"int8", "per_block"}, Format{"fp8_e4m3", "per_block"},
                    Format{"int4_sym", "per_block"}, Format{"int8", "per_channel/per_tensor:fixed"},
                    Format{"fp8_e4m3", "per_token_head"}, Format{"int4_sym", "per_tensor"},
                    Format{"fp8_e4m3", "none"}, Format{"fp8_e4m3", "per_head"},
                    Format{"fp8_e5m2", "per_group:32"}, Format{"fp8_e5m2", "per_channel"},
                    Format{"int8", "per_token_head"}, Format{"int6", ""}, Format{"int5", ""},
                    Format{"int4", ""}, Format{"int3", ""}, Format{"int2", ""},
                    Format{"int4/int8", ""}, Format{"f16/int3", ""},
                    Format{"int4_sym", "per_token_head"}, Format{"int4_sym", "per_group:32"},
                    Format{"int4_sym", "per_channel"}, Format{"int4_asym", "per_group:32"},
                    Format{"int4_asym", "per_token_head"}, Format{"int8/int4", ""},
                    Format{"f16/int8", ""}, Format{"int4_asym/f32", ""}));

TEST(PagedAttentionTest, MatchesReferenceWithoutRotation) {
  for (const char* format : {"int8", "int8/int4", "fp8_e4m3"}) {
    for (const char* transform : {"none", "none/rotated", "rotated/none"}) {
      ExpectMatchesOnEveryIsa({.format = format, .transform = transform, .group = 3});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(PagedAttentionTest, MatchesReferenceWithBalancedKeys) {
  for (const char* format : {"int8", "int4", "int3/int6"}) {
    ExpectMatchesOnEveryIsa({.format = format, .transform = "balanced", .group = 3});
    if (testing::Test::HasFatalFailure()) return;
  }
}

class PagedAttentionShapeTest : public testing::TestWithParam<const char*> {};

TEST_P(PagedAttentionShapeTest, HeadSizes) {
  for (const int head_dim : {64, 80, 96, 112, 128, 192, 256}) {
    const char* granularity =
        head_dim == 96 && std::string(GetParam()) == "int4_sym" ? "per_group:32" : "";
    ExpectMatchesOnEveryIsa({.format = GetParam(),
                             .granularity = granularity,
                             .num_kv_heads = 1,
                             .head_dim = head_dim,
                             .block_size = 16});
    if (HasFatalFailure()) return;
  }
}

TEST_P(PagedAttentionShapeTest, HeadsPerGroup) {
  for (const int group : {1, 3, 4, 8, 40}) {
    ExpectMatchesOnEveryIsa(
        {.format = GetParam(), .num_kv_heads = group == 40 ? 1 : 2, .group = group});
    if (HasFatalFailure()) return;
  }
}

TEST_P(PagedAttentionShapeTest, BlockSizes) {
  for (const int block_size : {16, 32, 64, 128, 256}) {
    Geometry geometry = {.format = GetParam(), .num_kv_heads = 1, .block_size = block_size};
    for (const Isa isa : AvailableIsas()) {
      SCOPED_TRACE(testing::Message() << Describe(geometry) << " isa " << Name(isa));
      RunMixedBatches(
          {.layers = {geometry}, .isa = isa, .max_batch_tokens = 1000, .max_context = 4096});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PagedAttentionShapeTest, SlidingWindows) {
  for (const int window : {1, 2, 16, 31, 32, 33, 50, 1000}) {
    ExpectMatchesOnEveryIsa({.format = GetParam(),
                             .num_kv_heads = 1,
                             .group = 3,
                             .block_size = 16,
                             .sliding_window = window});
    if (HasFatalFailure()) return;
  }
}

TEST_P(PagedAttentionShapeTest, SinkCounts) {
  for (const int num_sinks : {0, 1, 16}) {
    for (const int window : {0, 20}) {
      ExpectMatchesOnEveryIsa({.format = GetParam(),
                               .num_kv_heads = 1,
                               .block_size = 16,
                               .num_sink_tokens = num_sinks,
                               .sliding_window = window});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PagedAttentionShapeTest, SoftCap) {
  ExpectMatchesOnEveryIsa({.format = GetParam(), .logit_softcap = 2.5f, .query_gain = 4});
}

INSTANTIATE_TEST_SUITE_P(Formats, PagedAttentionShapeTest,
                         testing::Values("f32", "f16", "int8", "int4", "int4_sym"));

TEST(PagedAttentionTest, LayersOfDifferentShapeAndFormat) {
  const std::vector<Geometry> layers = {
      {.format = "int8", .num_kv_heads = 2, .group = 2, .head_dim = 64},
      {.format = "f32", .num_kv_heads = 1, .group = 3, .head_dim = 128, .sliding_window = 40},
      {.format = "int4", .num_kv_heads = 4, .group = 1, .head_dim = 80},
      {.format = "f16", .num_kv_heads = 2, .group = 2, .head_dim = 64},
  };
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(Name(isa));
    RunMixedBatches({.layers = layers, .isa = isa, .num_threads = 2});
  }
}

TEST(PagedAttentionTest, ManySplitsMatchReference) {
  for (const Isa isa : AvailableIsas()) {
    for (const char* format : {"f32", "int8"}) {
      SCOPED_TRACE(testing::Message() << format << ' ' << Name(isa));
      Harness harness(
          {.layers = {{.format = format, .num_kv_heads = 1}}, .isa = isa, .num_threads = 2});
      TestSequence sequence = harness.Add(5);
      for (int i = 0; i < 3; ++i) harness.StoreOnly(&sequence, 600);
      RunStep(harness, {{&sequence, 1}});
      RunStep(harness, {{&sequence, 3}});
    }
  }
}

// Copies from before the step, of the step itself, and none yet; more recent blocks than a split.
TEST(PagedAttentionTest, RecentTokensAreReadAsTheirCopies) {
  for (const Isa isa : AvailableIsas()) {
    for (const int recent : {32, 96, 640}) {
      const Geometry geometry = {.format = "int4", .head_dim = 32, .num_recent_tokens = recent};
      SCOPED_TRACE(testing::Message() << Describe(geometry) << ' ' << Name(isa));
      RunMixedBatches({.layers = {geometry}, .isa = isa, .num_threads = 2});
      Harness harness({.layers = {geometry}, .isa = isa, .num_threads = 2});
      TestSequence sequence = harness.Add(5);
      harness.Feed(&sequence, 560, 200);
      RunStep(harness, {{&sequence, 150}});
      RunStep(harness, {{&sequence, 1}});
      harness.StoreOnly(&sequence, 100);
      RunStep(harness, {{&sequence, 2}});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// What a copy has over the codes: the error of attention falls towards that of int8.
TEST(PagedAttentionTest, RecentTokensAreCloserToTheExactOnes) {
  const auto feed = [](const char* format, int recent) {
    Harness harness({.layers = {{.format = format, .head_dim = 64, .num_recent_tokens = recent}}});
    TestSequence sequence = harness.Add(3);
    return harness.Feed(&sequence, 400, 400)[0];
  };
  const std::vector<float> exact = feed("f32", 0);
  const auto error = [&](const std::vector<float>& out) {
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      sum += std::pow(static_cast<double>(out[i] - exact[i]), 2);
    }
    return sum;
  };
  const double int4 = error(feed("int4", 0)), some = error(feed("int4", 192)),
               all = error(feed("int4", 1024)), int8 = error(feed("int8", 0));
  EXPECT_LT(some, 0.7 * int4);
  EXPECT_LT(all, 0.1 * some);
  EXPECT_EQ(all, int8);
}

TEST(PagedAttentionTest, ForksShareBlocksAndDiffer) {
  for (const int fork_at :
       {2, 20, 64, 75}) {  // before the sinks are complete, in block 0, at a block end, later
    SCOPED_TRACE(fork_at);
    Harness harness({.layers = {{.format = "int8", .block_size = 32}}, .num_threads = 2});
    TestSequence parent = harness.Add(1);
    harness.Feed(&parent, fork_at, 50);
    TestSequence child = harness.Fork(parent, 9);
    // Both close the same blocks in the same step, with different tokens.
    RunStep(harness, {{&parent, 40}, {&child, 40}});
    RunStep(harness, {{&child, 1}, {&parent, 1}});
    harness.manager().Free(parent.id);
    RunStep(harness, {{&child, 7}});
  }
}

struct MaximaObserver : KvObserver {
  std::mutex mutex;
  std::vector<std::pair<std::vector<float>, std::vector<float>>> maxima;  // of K and V by layer

  std::vector<std::vector<float>> query_maxima;  // by layer [num_kv_heads][64]

  void ObserveQueries(int layer, int head, const float* rows, size_t stride,
                      int num_rows) override {
    const std::scoped_lock lock(mutex);
    for (size_t i = 0; i < static_cast<size_t>(num_rows); ++i) {
      for (size_t c = 0; c < 64; ++c) {
        float& max = query_maxima[static_cast<size_t>(layer)][static_cast<size_t>(head) * 64 + c];
        max = std::max(max, std::fabs(rows[i * stride + c]));
      }
    }
  }
  void Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
               int num_rows) override {
    const std::scoped_lock lock(mutex);
    auto& [k, v] = maxima[static_cast<size_t>(layer)];
    for (size_t i = 0; i < static_cast<size_t>(num_rows); ++i) {
      for (size_t c = 0; c < 64; ++c) {
        float& max = (side == KvSide::kKey ? k : v)[static_cast<size_t>(head) * 64 + c];
        max = std::max(max, std::fabs(rows[i * stride + c]));
      }
    }
  }
};

// Blocks of one sequence and layer, the tokens of all blocks side by side.
struct BlockCollector : KvBlockObserver {
  struct Head {
    std::vector<float> exact, stored;
  };
  std::map<std::pair<KvSide, int>, Head> heads;

  void ObserveBlock(int /*layer*/, int head, KvSide side, const float* exact, const float* stored,
                    int num_tokens) override {
    Head& seen = heads[{side, head}];
    seen.exact.insert(seen.exact.end(), exact, exact + num_tokens * 64);
    seen.stored.insert(seen.stored.end(), stored, stored + num_tokens * 64);
  }
};

TEST(PagedAttentionTest, BlockObserverSeesWhatIsStored) {
  for (const Geometry& geometry :
       {Geometry{.format = "int8"}, Geometry{.format = "int4/int3"},
        Geometry{.format = "int8", .granularity = "per_channel", .transform = "none"},
        Geometry{.format = "fp8_e4m3", .granularity = "per_head"},
        Geometry{.format = "int4_asym", .transform = "none"}, Geometry{.format = "f16"}}) {
    Harness harness({.layers = {geometry}});
    BlockCollector collector;
    harness.attention().set_block_observer(&collector);
    TestSequence sequence = harness.Add(1);
    harness.Feed(&sequence, 70, 40);  // two blocks of 32 and some
    const attention_test::Reference reference(harness, sequence, 0);
    for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
      for (int head = 0; head < 2; ++head) {
        const BlockCollector::Head& seen = collector.heads[{side, head}];
        ASSERT_EQ(seen.stored.size(), 64u * 64u) << Describe(geometry);
        for (int token = 0; token < 64; ++token) {
          const auto at = [&](std::span<const float> row) {
            const auto part = row.subspan(static_cast<size_t>(head) * 64, 64);
            return std::vector<float>(part.begin(), part.end());
          };
          const auto first = seen.exact.begin() + token * 64,
                     coded = seen.stored.begin() + token * 64;
          ASSERT_EQ(std::vector<float>(first, first + 64), at(reference.Exact(side, token)))
              << Describe(geometry);
          ASSERT_EQ(std::vector<float>(coded, coded + 64), at(reference.Coded(side, token)))
              << Describe(geometry);
        }
      }
    }
  }
}

TEST(PagedAttentionTest, ObserverSeesWhatTheModelComputed) {
  const Geometry geometry = {.num_kv_heads = 2, .group = 3, .block_size = 16};
  Harness harness({.layers = {geometry, geometry}, .num_threads = 2});
  const std::vector<float> zeros(2 * 64, 0.0f);
  MaximaObserver observer;
  observer.maxima.assign(2, {zeros, zeros});
  observer.query_maxima.assign(2, zeros);
  harness.attention().set_observer(&observer);
  TestSequence a = harness.Add(1), b = harness.Add(2);
  harness.Step({{&a, 40}, {&b, 3}});
  harness.Step({{&a, 1}, {&b, 20}});
  harness.attention().set_observer(nullptr);
  harness.Step({{&a, 9}});

  for (int layer = 0; layer < 2; ++layer) {
    std::vector<float> k = zeros, v = zeros, q = zeros;
    for (const auto& [seed, num_tokens] : {std::pair{1, 41}, {2, 23}}) {
      for (int position = 0; position < num_tokens; ++position) {
        const auto raise = [&](attention_test::Kind kind, std::vector<float>& max) {
          const auto row =
              TokenVector(kind, geometry, static_cast<uint64_t>(seed), layer, position);
          for (size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], std::fabs(row[i]));
        };
        raise(attention_test::Kind::kKey, k);
        raise(attention_test::Kind::kValue, v);
        const auto queries = TokenVector(attention_test::Kind::kQuery, geometry,
                                         static_cast<uint64_t>(seed), layer, position);
        for (size_t i = 0; i < queries.size(); ++i) {
          float& max = q[i / 64 / 3 * 64 + i % 64];
          max = std::max(max, std::fabs(queries[i]));
        }
      }
    }
    EXPECT_EQ(observer.maxima[static_cast<size_t>(layer)].first, k);
    EXPECT_EQ(observer.maxima[static_cast<size_t>(layer)].second, v);
    EXPECT_EQ(observer.query_maxima[static_cast<size_t>(layer)], q);
  }
}

// Static scales of 0.5 and more times 1 / 127 of what the harness takes for the largest value:
// heads with the small ones have values beyond the range.
TEST(PagedAttentionTest, BlocksBeyondTheirStaticRangeAreCorrectedAndCounted) {
  for (const bool fixed : {false, true}) {
    Harness harness({.layers = {{.format = "int8",
                                 .granularity = fixed ? "per_head:fixed" : "per_head",
                                 .transform = "none",
                                 .num_kv_heads = 2,
                                 .block_size = 16}}});
    TestSequence a = harness.Add(1);
    harness.Step({{&a, 32}});
    const SaturationCounts::Layer& counts = harness.attention().saturation().layers[0];
    for (size_t head = 0; head < 2; ++head) {
      EXPECT_EQ(counts.num_blocks[head], 2);
      for (const SaturationCounts::Side* side : {&counts.k, &counts.v}) {
        EXPECT_GT(side->reach[head], kUncorrectedReach);
        EXPECT_EQ(side->corrected_blocks[head], fixed ? 0 : 2);
      }
    }
  }
}

// Powers of two: twice the scale gives the bits of twice the queries.
TEST(PagedAttentionTest, ScaledScoresAreThoseOfScaledQueries) {
  const auto run = [](const char* format, float query_gain, float factor) {
    Harness harness({.layers = {{.format = format, .block_size = 16, .query_gain = query_gain}}});
    harness.attention().ScaleScores(factor);
    TestSequence a = harness.Add(1);
    return harness.Step({{&a, 70}});
  };
  for (const char* format : {"f32", "int8", "int4"}) {
    EXPECT_EQ(run(format, 1, 2), run(format, 2, 1)) << format;
    EXPECT_NE(run(format, 1, 2), run(format, 1, 1)) << format;
  }
}

TEST(PagedAttentionTest, SaturationIsCountedWhenBlocksClose) {
  // A token's own scale puts its largest value, and only values within half a step of it, at the
  // end of the range.
  Harness harness({.layers = {{.format = "int8",
                               .granularity = "per_token_head",
                               .num_kv_heads = 2,
                               .block_size = 16}},
                   .num_threads = 2});
  TestSequence a = harness.Add(1);
  harness.Step({{&a, 15}});
  const SaturationCounts::Layer& counts = harness.attention().saturation().layers[0];
  EXPECT_EQ(counts.num_codes[0], 0);
  harness.Step({{&a, 1}});
  harness.Step({{&a, 33}});
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_EQ(counts.num_codes[head], 3 * 16 * 64);
    EXPECT_GE(counts.k.end_codes[head], 3 * 16);
    EXPECT_LT(counts.k.end_codes[head], 3 * 16 * 3);
    EXPECT_GE(counts.v.end_codes[head], 3 * 16);
    EXPECT_LT(counts.v.end_codes[head], 3 * 16 * 6);
  }
}

}  // namespace
}  // namespace turboquant
