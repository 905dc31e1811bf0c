// Statistics, clip rules and the table file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "calibration/builtin_texts.h"
#include "calibration/calibration_table.h"
#include "calibration/clip_rule.h"
#include "calibration/statistics.h"
#include "codec/rotation.h"

namespace turboquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kHeadDim = 16;

std::vector<KvCacheSpec> TwoLayers() {
  return {2, KvCacheSpec{.num_kv_heads = 2, .head_dim = kHeadDim}};
}

// Normal values with one outlier: channel 3 of head 1 of layer 1's K at -40.
KvStatistics Observed() {
  KvStatistics statistics(TwoLayers());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int layer = 0; layer < 2; ++layer) {
    for (int head = 0; head < 2; ++head) {
      for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
        std::vector<float> rows(100 * kHeadDim);
        for (float& x : rows) x = normal(random);
        if (layer == 1 && head == 1 && side == KvSide::kKey) rows[50 * kHeadDim + 3] = -40;
        statistics.Observe(layer, head, side, rows.data(), kHeadDim, 100);
      }
    }
  }
  return statistics;
}

TEST(MagnitudeHistogram, BinsHoldWhatTheirEdgesSay) {
  for (const float x : {1e-9f, 0.001f, 0.7f, 1.0f, 1.03f, 1.07f, 448.0f, 1e9f}) {
    const int bin = MagnitudeHistogram::BinOf(x);
    EXPECT_LT(static_cast<double>(x), MagnitudeHistogram::UpperEdge(bin)) << x;
    EXPECT_GE(static_cast<double>(x), MagnitudeHistogram::UpperEdge(bin - 1)) << x;
  }
  EXPECT_EQ(MagnitudeHistogram::BinOf(0), 0);
  EXPECT_EQ(MagnitudeHistogram::BinOf(1e30f), MagnitudeHistogram::kNumBins - 1);
}

TEST(KvStatistics, PerChannelAndRotated) {
  const KvStatistics statistics = Observed();
  const HeadStatistics& head = statistics.Head(1, 1, KvSide::kKey);
  EXPECT_EQ(head.num_tokens, 100);
  EXPECT_EQ(head.channel_max[3], 40.0f);
  EXPECT_EQ(head.max, 40.0f);
  EXPECT_LT(head.rotated_max, 16.0f);
  EXPECT_GT(head.rotated_max, 40.0f / 4 - 4);
  EXPECT_EQ(head.magnitudes.total(), 100 * kHeadDim);
  EXPECT_NEAR(head.channel_sum[0] / 100, 0, 0.5);
  EXPECT_NEAR(head.channel_sum_squares[0] / 100, 1, 0.5);
}

TEST(KvStatistics, RowsWithNanAreLeftOut) {
  KvStatistics statistics(TwoLayers());
  std::vector<float> row(kHeadDim, 1.0f);
  statistics.Observe(0, 0, KvSide::kValue, row.data(), kHeadDim, 1);
  row[4] = std::nanf("");
  statistics.Observe(0, 0, KvSide::kValue, row.data(), kHeadDim, 1);
  const HeadStatistics& head = statistics.Head(0, 0, KvSide::kValue);
  EXPECT_EQ(head.num_tokens, 1);
  EXPECT_EQ(head.num_dropped, 1);
  EXPECT_EQ(head.max, 1.0f);
}

// Keys with a spread of 2 around a mean of 100 that a block takes off, queries with one of 8: keys
// times 2 and queries over 2 have the same. The other channels: 1 and 1.
TEST(CalibrationTable, BalanceEvensKeysAndQueries) {
  KvStatistics statistics(TwoLayers());
  std::vector<float> keys(64 * kHeadDim), queries(64 * kHeadDim);
  for (size_t i = 0; i < keys.size(); ++i) {
    const float sign = i / kHeadDim % 2 == 0 ? 1.0f : -1.0f;
    keys[i] = i % kHeadDim == 3 ? 100 + 2 * sign : sign;
    queries[i] = i % kHeadDim == 3 ? 8 * sign : sign;
  }
  for (int layer = 0; layer < 2; ++layer) {
    for (int head = 0; head < 2; ++head) {
      statistics.Observe(layer, head, KvSide::kKey, keys.data(), kHeadDim, 64);
      statistics.Observe(layer, head, KvSide::kValue, keys.data(), kHeadDim, 64);
      statistics.ObserveQueries(layer, head, queries.data(), kHeadDim, 64);
    }
  }
  EXPECT_EQ(statistics.Queries(1, 1).num_queries, 64);
  const CalibrationTable table = MakeCalibrationTable(statistics, *ParseClipRule("max"));
  const double mean = std::pow(2.0, 1.0 / kHeadDim);
  for (int c = 0; c < kHeadDim; ++c) {
    EXPECT_NEAR(table.layers[1].k_balance[static_cast<size_t>(kHeadDim + c)],
                (c == 3 ? 2 : 1) / mean, 1e-12)
        << c;
  }
  KvCacheSpec spec{.num_kv_heads = 2, .head_dim = kHeadDim};
  EXPECT_THAT(StaticScales(table.layers[1], spec).k_balance, testing::IsEmpty());
  spec.k.granularity = ScaleGranularity::kPerTokenHeadU8;
  spec.k.transform = KvTransform::kBalanced;
  EXPECT_THAT(StaticScales(table.layers[1], spec).k_balance, testing::SizeIs(2 * kHeadDim));
  EXPECT_TRUE(table.CheckSpec(spec));
  CalibrationTable imported = table;
  imported.clip_rule = kImported;
  EXPECT_THAT(imported.CheckSpec(spec).error().message, HasSubstr("knows no queries"));
}

TEST(ClipRule, Parse) {
  EXPECT_EQ(ParseClipRule("max")->ToString(), "max");
  EXPECT_EQ(ParseClipRule("mse")->ToString(), "mse");
  EXPECT_EQ(ParseClipRule("percentile:99.9")->ToString(), "percentile:99.9");
  for (const char* bad : {"", "p99", "percentile:", "percentile:50", "percentile:100.1",
                          "percentile:nan", "percentile:99x", "Max"}) {
    EXPECT_FALSE(ParseClipRule(bad)) << bad;
  }
}

TEST(ClipRule, Ranges) {
  MagnitudeHistogram magnitudes;
  for (int i = 1; i <= 1000; ++i) magnitudes.Add(static_cast<float>(i) / 1000);
  magnitudes.Add(50);
  EXPECT_EQ(ClipRange(*ParseClipRule("max"), magnitudes, 50), 50.0f);
  EXPECT_NEAR(ClipRange(*ParseClipRule("percentile:90"), magnitudes, 50), 0.9f, 0.07f);
  EXPECT_EQ(ClipRange(*ParseClipRule("percentile:100"), magnitudes, 50), 50.0f);
  EXPECT_EQ(ClipRange(*ParseClipRule("max"), magnitudes, 0), 0.0f);
  EXPECT_NEAR(ClippedShare(magnitudes, 0.9f), 0.1, 0.04);
  EXPECT_EQ(ClippedShare(magnitudes, 50), 0.0);
}

// One value of 50 among a million of up to 1: giving it up costs less than a step 50 times as wide.
TEST(ClipRule, MseGivesUpWhatCostsLeast) {
  MagnitudeHistogram magnitudes;
  for (int i = 1; i <= 1000000; ++i) magnitudes.Add(static_cast<float>(i) / 1000000);
  magnitudes.Add(50);
  const float range = ClipRange(*ParseClipRule("mse"), magnitudes, 50);
  EXPECT_GT(range, 1.0f);
  EXPECT_LT(range, 30.0f);
}

CalibrationTable Table() {
  CalibrationTable table = MakeCalibrationTable(Observed(), {});
  table.model = {.architecture = "llama",
                 .num_layers = 2,
                 .num_kv_heads = 2,
                 .head_dim = kHeadDim,
                 .tensor_hash = "t",
                 .tokenizer_hash = "k"};
  table.texts = {"a.txt"};
  return table;
}

TEST(CalibrationTable, SurvivesItsFile) {
  const CalibrationTable table = Table();
  const auto read = ParseCalibrationTable(ToJson(table), "scales.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, table);
  EXPECT_TRUE(read->CheckModel(table.model));
}

TEST(CalibrationTable, ScalesOfEveryGranularity) {
  const CalibrationTable table = Table();
  const CalibratedLayer& layer = table.layers[1];
  const auto scales = [&](KvSideSpec side) {
    return StaticScales(layer, {.k = side, .v = side, .num_kv_heads = 2, .head_dim = kHeadDim}).k;
  };
  const auto scale = [](double range, double code) { return static_cast<float>(range / code); };
  using enum ScaleGranularity;
  EXPECT_THAT(scales({KvCacheDtype::kInt8, kPerTensor}), ElementsAre(40.0f / 127));
  EXPECT_THAT(scales({KvCacheDtype::kInt8, kPerHead}),
              ElementsAre(scale(layer.k.ranges[0], 127), 40.0f / 127));
  EXPECT_THAT(
      scales({KvCacheDtype::kFp8E4m3, kPerHead, 0, KvTransform::kRotated}),
      ElementsAre(scale(layer.k.rotated_ranges[0], 448), scale(layer.k.rotated_ranges[1], 448)));
  const auto channels = scales({KvCacheDtype::kInt4Sym, kPerChannel});
  ASSERT_EQ(channels.size(), 2u * kHeadDim);
  EXPECT_EQ(channels[kHeadDim + 3], 40.0f / 7);
  EXPECT_TRUE(scales({KvCacheDtype::kInt8, kPerTokenHead}).empty());
}

TEST(CalibrationTable, AnotherModelIsNamed) {
  const CalibrationTable table = Table();
  const auto error = [&](auto change) {
    ModelFingerprint other = table.model;
    change(&other);
    const Status status = table.CheckModel(other);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_THAT(error([](auto* m) { m->architecture = "qwen2"; }), HasSubstr("architecture llama"));
  EXPECT_THAT(error([](auto* m) { m->num_layers = 3; }), HasSubstr("layers 2"));
  EXPECT_THAT(error([](auto* m) { m->num_kv_heads = 4; }), HasSubstr("KV heads 2"));
  EXPECT_THAT(error([](auto* m) { m->head_dim = 64; }), HasSubstr("head size 16"));
  EXPECT_THAT(error([](auto* m) { m->tensor_hash = "u"; }), HasSubstr("weights t"));
  EXPECT_THAT(error([](auto* m) { m->tokenizer_hash = "u"; }), HasSubstr("tokenizer k"));
}

TEST(CalibrationTable, PlantedFaultsAreNamed) {
  using Json = nlohmann::ordered_json;
  const auto error = [](auto change) {
    Json document = Json::parse(ToJson(Table()));
    change(document);
    const auto table = ParseCalibrationTable(document.dump(), "scales.json");
    return table ? std::string("accepted") : table.error().message;
  };
  EXPECT_THAT(error([](Json& d) { d["layers"][1].erase("v"); }), HasSubstr("layer 1, v: missing"));
  EXPECT_THAT(error([](Json& d) { d["layers"].erase(0); }), HasSubstr("1 layers, the model has 2"));
  EXPECT_THAT(error([](Json& d) { d["layers"].push_back(d["layers"][0]); }), HasSubstr("3 layers"));
  EXPECT_THAT(error([](Json& d) { d["layers"][0]["k"]["ranges"].erase(0); }),
              HasSubstr("layer 0, k: 1 ranges, the model has 2"));
  for (const Json& bad : {Json(0), Json(-1.5), Json(nullptr), Json("1"), Json(1e300)}) {
    EXPECT_THAT(error([&](Json& d) { d["layers"][1]["k"]["rotated_ranges"][1] = bad; }),
                HasSubstr("layer 1, k: rotated_ranges[1] is " + bad.dump()));
  }
  // Heads exchanged: alone by what their channels say, with their channels by the digest.
  const auto exchange = [](Json* entries) {
    const size_t half = entries->size() / 2;
    for (size_t i = 0; i < half; ++i) std::swap((*entries)[i], (*entries)[half + i]);
  };
  EXPECT_THAT(error([&](Json& d) { exchange(&d["layers"][1]["k"]["ranges"]); }),
              HasSubstr("layer 1, k: ranges[0] is 40, the channels of that head reach"));
  EXPECT_THAT(error([&](Json& d) { exchange(&d["layers"][1]["k"]["channel_ranges"]); }),
              HasSubstr("layer 1, k: ranges[1] is 40, the channels of that head reach"));
  EXPECT_THAT(error([&](Json& d) {
                for (Json& entries : d["layers"][1]["k"]) exchange(&entries);
              }),
              HasSubstr("do not match the digest"));
  EXPECT_THAT(error([](Json& d) { d["layers"][0]["v"]["ranges"][0] = 1; }), HasSubstr("digest"));
  EXPECT_THAT(error([](Json& d) { d.erase("digest"); }), HasSubstr("digest"));
  EXPECT_THAT(error([](Json& d) { d["version"] = 1; }), HasSubstr("version 1"));
  EXPECT_THAT(error([](Json& d) { d["format"] = "x"; }), HasSubstr("not a calibration table"));
  EXPECT_THAT(error([](Json& d) { d["model"].erase("head_dim"); }), HasSubstr("incomplete"));
  EXPECT_THAT(error([](Json& d) { d["recipe"]["texts"][0] = 1; }), HasSubstr("texts"));
  EXPECT_THAT(error([](Json& d) { d = Json::array(); }), HasSubstr("not a calibration table"));
  EXPECT_THAT(ParseCalibrationTable("{", "s.json").error().message, HasSubstr("no JSON"));
}

TEST(CalibrationTable, WarningsNameOutliersAndSilence) {
  const KvStatistics statistics = Observed();
  EXPECT_THAT(CalibrationWarnings(statistics, MakeCalibrationTable(statistics, {})),
              ElementsAre(HasSubstr("layer 1, K head 1: channel 3 reaches 40")));
  KvStatistics biased(TwoLayers());
  const std::vector<float> ones(kHeadDim, 1.0f);
  for (int i = 0; i < 8; ++i) {
    const int layer = i / 4, head = i / 2 % 2;
    biased.Observe(layer, head, i % 2 == 0 ? KvSide::kKey : KvSide::kValue, ones.data(), 0, 3);
  }
  const auto of_biased = CalibrationWarnings(biased, MakeCalibrationTable(biased, {}));
  EXPECT_EQ(of_biased.size(), 8u);
  EXPECT_THAT(of_biased.front(), HasSubstr("layer 0, K head 0: 100 % of the energy"));
  const KvStatistics silent(TwoLayers());
  const CalibrationTable table = MakeCalibrationTable(silent, {});
  EXPECT_EQ(CalibrationWarnings(silent, table).size(), 8u);
  EXPECT_EQ(table.layers[0].k.ranges[0], 1.0);
}

TEST(BuiltinTexts, AreThere) {
  EXPECT_EQ(BuiltinCalibrationTexts().size(), 5u);
  for (const BuiltinText& text : BuiltinCalibrationTexts()) {
    EXPECT_GT(text.content.size(), 800u) << text.name;
  }
}

}  // namespace
}  // namespace turboquant
