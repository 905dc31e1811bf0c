// The invariance tests at length: 1,500 tokens in one pass and in chunks of 512, 100 and 1, alone
// and beside three other sequences, on 1, 2 and 3 threads, for every format; and random shapes.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "attention/attention_invariance.h"
#include "attention/attention_test_util.h"

namespace turboquant {
namespace {

using attention_test::AvailableIsas;
using attention_test::ExpectInvariant;
using attention_test::Geometry;
using attention_test::Way;

struct Format {
  const char* dtype;
  const char* granularity;
};
constexpr Format kFormats[] = {{"f32", ""},
                               {"f16", ""},
                               {"bf16", ""},
                               {"int8", ""},
                               {"int8", "per_group:32"},
                               {"int8", "per_tensor"},
                               {"int8", "per_head"},
                               {"int8", "per_channel"},
                               {"fp8_e4m3", ""},
                               {"fp8_e4m3", "per_token_head"},
                               {"fp8_e5m2", "per_group:32"},
                               {"int4", ""},
                               {"int6/int3", ""},
                               {"int5/int2", ""},
                               {"int4_sym", "per_channel"},
                               {"int4_asym", ""},
                               {"int4_asym", "per_group:32"},
                               {"int8/int4", ""},
                               {"f32/int8", ""}};

TEST(AttentionInvarianceSlowTest, AllFormatsAt1500Tokens) {
  std::vector<Way> ways;
  for (const int chunk_tokens : {1500, 512, 100, 1}) {
    for (const int num_threads : {1, 2, 3}) {
      ways.push_back({num_threads, num_threads, chunk_tokens, false});
      ways.push_back({num_threads, num_threads, chunk_tokens, true});
    }
  }
  for (const Isa isa : AvailableIsas()) {
    for (const Format& format : kFormats) {
      ExpectInvariant({{.format = format.dtype,
                        .granularity = format.granularity,
                        .num_kv_heads = 1,
                        .group = 3,
                        .head_dim = 32}},
                      isa, 1500, ways);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionInvarianceSlowTest, RandomShapes) {
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random)];
  };
  const std::vector<Way> ways = {
      {1, 1, 1, false}, {2, 2, 61, true}, {3, 9, 512, true}, {3, 3, 13, false}};
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Geometry> layers;
    const int block_size = pick({16, 32, 64, 128, 256});
    const int num_sinks = pick({0, 1, 4, 16});
    for (int layer = 0; layer < 2; ++layer) {
      const Format& format =
          kFormats[std::uniform_int_distribution<size_t>(0, std::size(kFormats) - 1)(random)];
      layers.push_back({.format = format.dtype,
                        .granularity = format.granularity,
                        .num_kv_heads = pick({1, 2, 3}),
                        .group = pick({1, 2, 3, 4, 8}),
                        .head_dim = pick({32, 64, 96}),
                        .block_size = block_size,
                        .num_sink_tokens = num_sinks,
                        .sliding_window = pick({0, 0, 7, 64, 100, 513}),
                        .logit_softcap = pick({0, 0, 5}) * 1.0f,
                        .query_gain = pick({1, 3}) * 1.0f});
    }
    const std::vector<Isa> isas = AvailableIsas();
    ExpectInvariant(layers, isas[static_cast<size_t>(trial) % isas.size()], pick({300, 530, 700}),
                    ways);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace turboquant
