// Files of other engines: what they hold, what is wrong with them, and the way there and back.
#include "calibration/scale_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "calibration/calibration_table.h"
#include "calibration/scale_conversion.h"
#include "base/json_text.h"

namespace turboquant {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum ScaleLayout;

constexpr int kNumLayers = 3, kNumHeads = 4, kHeadDim = 16;
constexpr std::array kForeign = {kKvCacheScales, kSelfAttn, kAttn, kProj, kKvScale};

ModelFingerprint Fingerprint() {
  return {.architecture = "llama",
          .num_layers = kNumLayers,
          .num_kv_heads = kNumHeads,
          .head_dim = kHeadDim,
          .tensor_hash = "t",
          .tokenizer_hash = "k"};
}

// Ranges of all magnitudes, so that every way a float can round is met.
CalibrationTable Table(uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::lognormal_distribution<float> ranges(0, 4);
  const auto draw = [&](int count) {
    std::vector<double> drawn;
    for (int i = 0; i < count; ++i) drawn.push_back(static_cast<double>(ranges(random)));
    return drawn;
  };
  const auto side = [&] {
    return CalibratedSide{draw(kNumHeads), draw(kNumHeads), draw(kNumHeads * kHeadDim)};
  };
  CalibrationTable table = {
      .model = Fingerprint(), .clip_rule = "max", .num_tokens = 9, .texts = {}, .layers = {}};
  for (int i = 0; i < kNumLayers; ++i) {
    table.layers.push_back({.k = side(), .v = side(), .k_balance = draw(kNumHeads * kHeadDim)});
  }
  return table;
}

// A file of the layout, with other scales in every place.
EngineScales Scales(ScaleLayout layout, int num_parts = 1, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::lognormal_distribution<float> values(-4, 3);
  EngineScales scales = {
      .model_type = layout == kKvCacheScales ? "llama" : "", .num_parts = num_parts, .layers = {}};
  for (int i = 0; i < kNumLayers; ++i) {
    LayerScales& layer = scales.layers.emplace_back();
    for (int part = 0; part < num_parts; ++part) {
      layer.k.push_back(values(random));
      layer.v.push_back(HasOneFactorForKAndV(layout) ? layer.k.back() : values(random));
    }
  }
  return scales;
}

Result<EngineScales> Read(const std::string& text, ScaleLayout layout) {
  TQ_RETURN_IF_ERROR(CheckJson(text, "s.json"));
  return ReadEngineScales(json::parse(text), layout, "s.json");
}

TEST(ScaleLayout, NamesAreTheirOwn) {
  for (const ScaleLayout layout : kAllScaleLayouts) EXPECT_EQ(ScaleLayoutOf(Name(layout)), layout);
}

TEST(ScaleLayout, WritesWhatEnginesRead) {
  const EngineScales scales = {
      .model_type = "llama", .num_parts = 1, .layers = {{{0.023f}, {0.023f}}, {{1.f}, {1.f}}}};
  EXPECT_EQ(json::parse(ToJson(scales, kKvCacheScales)), json::parse(R"({"model_type": "llama",
      "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {"0": 0.023, "1": 1.0}}}})"));
  EXPECT_EQ(json::parse(ToJson(scales, kKvScale)),
            json::parse(R"({"model.layers.0.self_attn.kv_scale": 0.023,
                            "model.layers.1.self_attn.kv_scale": 1.0})"));
  const EngineScales apart = {.model_type = "", .num_parts = 1, .layers = {{{0.5f}, {0.25f}}}};
  const auto named = [&](ScaleLayout layout, const std::string& k, const std::string& v) {
    EXPECT_EQ(json::parse(ToJson(apart, layout)), json({{"model.layers.0.self_attn." + k, 0.5},
                                                        {"model.layers.0.self_attn." + v, 0.25}}));
  };
  named(kSelfAttn, "k_scale", "v_scale");
  named(kAttn, "attn.k_scale", "attn.v_scale");
  named(kProj, "k_proj.k_scale", "v_proj.v_scale");
}

TEST(ScaleLayout, IsDetected) {
  for (const ScaleLayout layout : kForeign) {
    const auto found = DetectScaleLayout(json::parse(ToJson(Scales(layout), layout)), "s.json");
    ASSERT_TRUE(found) << Name(layout);
    EXPECT_EQ(*found, layout);
  }
  EXPECT_EQ(DetectScaleLayout(json::parse(ToJson(Table())), "s.json"), kTurboquant);
  for (const char* text : {"{}", "[]", "3", "null", R"({"model.layers.0.self_attn.q_scale": 1})",
                           R"({"transformer.h.0.k_scale": 1})"}) {
    const auto found = DetectScaleLayout(json::parse(text), "s.json");
    ASSERT_FALSE(found) << text;
    EXPECT_THAT(found.error().message, HasSubstr("s.json: holds no scales"));
  }
}

// Many files: the way back must not depend on how a product happens to round.
TEST(ScaleConversion, EveryLayoutToATableAndBackIsTheSame) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    for (const ScaleLayout layout : kForeign) {
      for (const int num_parts : {1, 2, 4, 8}) {
        if (num_parts > 1 && layout != kKvCacheScales) continue;
        EngineScales scales = Scales(layout, num_parts, seed);
        if (num_parts == 8) {  // two ranks to a head, which hold the same
          scales = *WithParts(Scales(layout, 4, seed), 8, nullptr);
        }
        const std::string file = ToJson(scales, layout);
        const auto read = Read(file, layout);
        ASSERT_TRUE(read) << read.error().message;
        ASSERT_EQ(*read, scales);
        LossNotes notes;
        const auto table = TableOfScales(*read, Fingerprint(), "s.json", &notes);
        ASSERT_TRUE(table) << table.error().message;
        const auto reread = ParseCalibrationTable(ToJson(*table), "t.json");
        ASSERT_TRUE(reread) << reread.error().message;
        ASSERT_EQ(*reread, *table);
        EngineScales back = *WithParts(ScalesOfTable(*reread), num_parts, &notes);
        if (HasOneFactorForKAndV(layout)) back = WithOneFactor(back, &notes);
        ASSERT_EQ(ToJson(back, layout), file) << Name(layout) << ", " << num_parts;
        ASSERT_THAT(notes, IsEmpty());
      }
    }
  }
}

TEST(ScaleConversion, OurTableToEveryLayoutAndBackKeepsTheScalesPerTensor) {
  using enum ScaleGranularity;
  const KvSideSpec side = {KvCacheDtype::kFp8E4m3, kPerTensor};
  const KvCacheSpec spec = {.k = side, .v = side, .num_kv_heads = kNumHeads, .head_dim = kHeadDim};
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const CalibrationTable ours = Table(seed);
    for (const ScaleLayout layout : kForeign) {
      LossNotes notes;
      EngineScales scales = *WithParts(ScalesOfTable(ours), 1, &notes);
      if (HasOneFactorForKAndV(layout)) scales = WithOneFactor(scales, &notes);
      const auto read = Read(ToJson(scales, layout), layout);
      ASSERT_TRUE(read) << read.error().message;
      const auto back = TableOfScales(*read, Fingerprint(), "s.json", &notes);
      ASSERT_TRUE(back) << back.error().message;
      for (size_t i = 0; i < kNumLayers; ++i) {
        KvStaticScales want = StaticScales(ours.layers[i], spec);
        if (HasOneFactorForKAndV(layout)) want.k[0] = want.v[0] = std::max(want.k[0], want.v[0]);
        const KvStaticScales got = StaticScales(back->layers[i], spec);
        ASSERT_EQ(got.k, want.k) << Name(layout);
        ASSERT_EQ(got.v, want.v) << Name(layout);
      }
    }
  }
}

TEST(ScaleConversion, RanksAreSharesOfTheHeads) {
  const EngineScales two = {.model_type = "", .num_parts = 2, .layers = {{{1, 2}, {3, 4}}}};
  LossNotes notes;
  EXPECT_THAT(WithParts(two, 4, &notes)->layers[0].k, ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_THAT(WithParts(two, 1, &notes)->layers[0].v, ElementsAre(4));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("2 scales of a layer and side become 1")));
  EXPECT_THAT(notes[0], HasSubstr("changes 1 of 1 layers, by a factor of up to 2"));
  EXPECT_THAT(WithParts(two, 3, &notes).error().message, HasSubstr("2 equal shares"));
  notes.clear();
  EXPECT_THAT(WithOneFactor(two, &notes).layers[0].k, ElementsAre(3, 4));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("K and V share one factor")));
  EXPECT_THAT(notes[0], HasSubstr("up to 3"));
}

TEST(ScaleConversion, ScalesOfAnotherModelAreNamed) {
  const auto error = [](const std::function<void(ModelFingerprint*)>& change, int num_parts = 1) {
    ModelFingerprint model = Fingerprint();
    change(&model);
    LossNotes notes;
    const auto table = TableOfScales(Scales(kKvCacheScales, num_parts), model, "s.json", &notes);
    return table ? std::string("accepted") : table.error().message;
  };
  EXPECT_THAT(error([](auto* m) { m->num_layers = 4; }), HasSubstr("3 layers, the model has 4"));
  EXPECT_THAT(error([](auto* m) { m->architecture = "qwen2"; }), HasSubstr("type llama"));
  EXPECT_THAT(error([](auto* m) { m->num_kv_heads = 3; }, 2), HasSubstr("2 equal shares"));
  EXPECT_EQ(error([](auto*) {}), "accepted");
  EngineScales mistral = Scales(kKvCacheScales);
  mistral.model_type = "mistral";
  EXPECT_TRUE(CheckScalesFit(mistral, Fingerprint()));
}

TEST(ScaleConversion, AnImportedTableIsRefusedWhereItKnowsNothing) {
  LossNotes notes;
  const auto table = TableOfScales(Scales(kSelfAttn), Fingerprint(), "s.json", &notes);
  ASSERT_TRUE(table);
  using enum ScaleGranularity;
  const auto error = [&](KvSideSpec v) {
    const KvSideSpec k = {KvCacheDtype::kFp8E4m3, kPerHead};
    const Status status =
        table->CheckSpec({.k = k, .v = v, .num_kv_heads = kNumHeads, .head_dim = kHeadDim});
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(error({KvCacheDtype::kFp8E4m3, kPerTensor}), "accepted");
  EXPECT_EQ(error({KvCacheDtype::kInt8, kPerTokenHead, 0, KvTransform::kRotated}), "accepted");
  EXPECT_THAT(error({KvCacheDtype::kFp8E4m3, kPerHead, 0, KvTransform::kRotated}),
              HasSubstr("--kv-transform none"));
  EXPECT_THAT(error({KvCacheDtype::kInt8, kPerChannel}), HasSubstr("per_channel"));
}

TEST(ScaleConversion, NoOtherTableMayLackRanges) {
  const auto error = [](const CalibrationTable& table, const std::function<void(json*)>& change) {
    json document = json::parse(ToJson(table));
    change(&document);
    const auto read = ParseCalibrationTable(document.dump(), "t.json");
    return read ? std::string("accepted") : read.error().message;
  };
  LossNotes notes;
  const auto imported = *TableOfScales(Scales(kSelfAttn), Fingerprint(), "s.json", &notes);
  EXPECT_THAT(error(Table(), [](json* d) { (*d)["layers"][1]["v"].erase("rotated_ranges"); }),
              HasSubstr("layer 1, v: no rotated_ranges"));
  EXPECT_THAT(error(Table(), [](json* d) { (*d)["layers"][1].erase("k_balance"); }),
              HasSubstr("layer 1: no k_balance"));
  EXPECT_THAT(error(Table(), [](json* d) { (*d)["recipe"]["clip_rule"] = "imported"; }),
              HasSubstr("an imported table has no rotated_ranges"));
  EXPECT_THAT(error(imported, [](json* d) { (*d)["recipe"]["clip_rule"] = "max"; }),
              HasSubstr("layer 0, k: no rotated_ranges"));
}

std::string KvCacheScalesError(const std::function<void(json*)>& change) {
  json document = json::parse(ToJson(Scales(kKvCacheScales, 2), kKvCacheScales));
  change(&document);
  const auto scales = Read(document.dump(), kKvCacheScales);
  return scales ? std::string("accepted") : scales.error().message;
}

TEST(ScaleLayout, PlantedFaultsOfRanksAreNamed) {
  const auto error = [](const std::function<void(json&)>& change) {
    return KvCacheScalesError([&](json* d) { change((*d)["kv_cache"]["scaling_factor"]); });
  };
  EXPECT_EQ(error([](json&) {}), "accepted");
  for (const json& bad : {json(0), json(-0.5), json(1e300), json(1e-300), json(-1)}) {
    EXPECT_THAT(error([&](json& f) { f["1"]["2"] = bad; }),
                HasSubstr("s.json: rank 1, layer 2 is " + bad.dump() + ": want a scale above 0"));
  }
  for (const json& bad : {json(nullptr), json("0.1"), json(true), json::array({1})}) {
    EXPECT_THAT(error([&](json& f) { f["0"]["1"] = bad; }), HasSubstr("rank 0, layer 1 is "));
  }
  EXPECT_THAT(error([](json& f) { f["0"].erase("1"); }),
              HasSubstr("rank 0: layer 2 is there and layer 1 is missing"));
  EXPECT_THAT(error([](json& f) { f["1"].erase("2"); }),
              HasSubstr("rank 1 has 2 layers, rank 0 has 3"));
  EXPECT_THAT(error([](json& f) { f["1"] = json::object(); }), HasSubstr("rank 1: no layers"));
  EXPECT_THAT(error([](json& f) { f["1"] = 0.5; }), HasSubstr("rank 1 is 0.5"));
  EXPECT_THAT(error([](json& f) { f["0"]["01"] = 1; }), HasSubstr("'01' is no number of a layer"));
  EXPECT_THAT(error([](json& f) { f["0"]["4294967296"] = 1; }), HasSubstr("no number of a layer"));
  EXPECT_THAT(error([](json& f) { f["00"] = f["0"]; }), HasSubstr("'00' is no number of a tensor"));
  EXPECT_THAT(error([](json& f) { f["-1"] = f["0"]; }), HasSubstr("'-1' is no number"));
  EXPECT_THAT(error([](json& f) { f["3"] = f["0"]; }), HasSubstr("3 ranks, and rank 2 is missing"));
  EXPECT_THAT(error([](json& f) { f = json::object(); }), HasSubstr("no tensor-parallel ranks"));
  EXPECT_THAT(error([](json& f) { f = 3; }), HasSubstr("no object kv_cache.scaling_factor"));
}

TEST(ScaleLayout, PlantedFaultsOfTheHeaderAreNamed) {
  const auto error = [](const std::function<void(json&)>& change) {
    return KvCacheScalesError([&](json* d) { change(*d); });
  };
  EXPECT_THAT(error([](json& d) { d["kv_cache"]["dtype"] = "float8_e4m3fnuz"; }),
              HasSubstr("its largest code is 240"));
  EXPECT_THAT(error([](json& d) { d["kv_cache"]["dtype"] = "float8_e5m2"; }),
              HasSubstr("kv_cache.dtype is \"float8_e5m2\": only float8_e4m3fn"));
  EXPECT_THAT(error([](json& d) { d["kv_cache"].erase("dtype"); }), HasSubstr("dtype is null"));
  EXPECT_THAT(error([](json& d) { d["kv_cache"] = 1; }), HasSubstr("no object \"kv_cache\""));
  EXPECT_THAT(error([](json& d) { d["model_type"] = 1; }), HasSubstr("model_type is 1"));
  EXPECT_EQ(error([](json& d) { d["model_type"] = nullptr; }), "accepted");
  EXPECT_THAT(error([](json& d) { d = json::array(); }), HasSubstr("no object \"kv_cache\""));
  const auto twice = Read(R"({"kv_cache": {"dtype": "float8_e4m3fn",
      "scaling_factor": {"0": {"0": 1}, "0": {"0": 2}}}})",
                          kKvCacheScales);
  EXPECT_THAT(twice.error().message, HasSubstr("the key '0' stands twice"));
}

TEST(ScaleLayout, PlantedFaultsOfTensorNamesAreNamed) {
  for (const ScaleLayout layout : {kSelfAttn, kAttn, kProj, kKvScale}) {
    const auto error = [&](const std::function<void(json&)>& change) {
      json document = json::parse(ToJson(Scales(layout), layout));
      change(document);
      const auto scales = Read(document.dump(), layout);
      return scales ? std::string("accepted") : scales.error().message;
    };
    const json whole = json::parse(ToJson(Scales(layout), layout));
    const std::string last = std::prev(whole.end()).key(), first = whole.begin().key();
    EXPECT_EQ(error([](json&) {}), "accepted");
    for (const json& bad : {json(0), json(-1), json(1e30), json("1"), json(nullptr), json(true)}) {
      EXPECT_THAT(error([&](json& d) { d[last] = bad; }), HasSubstr(last + " is " + bad.dump()));
    }
    EXPECT_THAT(error([&](json& d) { d.erase(first); }), HasSubstr("no " + first));
    if (!HasOneFactorForKAndV(layout)) {  // 2N - 1 entries
      EXPECT_THAT(error([&](json& d) { d.erase(last); }), HasSubstr("no " + last));
    }
    for (const char* other :
         {"model.layers.0.self_attn.q_scale", "model.layers.00.self_attn.k_scale",
          "model.layers.-1.self_attn.k_scale", "model.layers.self_attn.k_scale",
          "model.layers.9999.self_attn.k_scale", "lm_head.weight_scale", ""}) {
      EXPECT_THAT(error([&](json& d) { d[other] = 0.5; }),
                  HasSubstr(fmt::format("'{}' is no name of layout {}", other, Name(layout))));
    }
    EXPECT_THAT(error([](json& d) { d = json::object(); }), HasSubstr("no scales"));
    EXPECT_THAT(error([](json& d) { d = json::array(); }), HasSubstr("want an object"));
  }
  EXPECT_THAT(Read(ToJson(Scales(kProj), kProj), kSelfAttn).error().message,
              HasSubstr("is no name of layout self_attn"));
  EXPECT_THAT(Read(R"({"model.layers.0.self_attn.k_scale": NaN})", kSelfAttn).error().message,
              HasSubstr("no JSON"));
}

}  // namespace
}  // namespace turboquant
