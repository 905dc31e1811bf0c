// Evaluate and MakeWindows on a tiny model with random weights.
#include "eval/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "calibration/calibration_table.h"
#include "eval/free_running.h"
#include "eval/observation.h"
#include "eval/tuning.h"
#include "model/model.h"

namespace turboquant {
namespace {

constexpr int kContext = 320;
constexpr int kFirstScored = 150;

class EvaluationTest : public ::testing::Test {
 protected:
  // 3 layers, 2 KV heads of 64.
  static void SetUpTestSuite() {
    auto model = Model::Load({.path = std::string(TURBOQUANT_TINY_MODELS) + "/llama-h64-g3.gguf"});
    ASSERT_TRUE(model) << model.error().message;
    model_ = new std::shared_ptr<const Model>(*model);
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(model_, nullptr); }

  static std::string Text(size_t num_words, uint32_t seed) {
    std::mt19937 random(seed);
    std::string text;
    for (size_t i = 0; i < num_words; ++i) {
      for (uint32_t letters = 2 + random() % 6; letters > 0; --letters) {
        text += static_cast<char>('a' + random() % 26);
      }
      text += i % 11 == 10 ? ". " : " ";
    }
    return text;
  }

  static std::vector<std::vector<int32_t>> Windows() {
    auto windows = MakeWindows(**model_, Text(1000, 1), 2, kContext);
    EXPECT_TRUE(windows) << windows.error().message;
    return *windows;
  }
  static std::vector<int32_t> Calibration() {
    return MakeWindows(**model_, Text(1000, 2), 1, kContext)->front();
  }

  static EvaluationOptions Options(std::vector<EvaluationCandidate> candidates) {
    EvaluationOptions options;
    options.candidates = std::move(candidates);
    options.context = kContext;
    options.first_scored = kFirstScored;
    return options;
  }

  static std::vector<EvaluationResult> Run(std::vector<EvaluationCandidate> candidates) {
    auto results = Evaluate(*model_, Windows(), Calibration(), Options(std::move(candidates)));
    EXPECT_TRUE(results) << results.error().message;
    return results.value_or(std::vector<EvaluationResult>{});
  }

  static std::shared_ptr<const Model>* model_;
};
std::shared_ptr<const Model>* EvaluationTest::model_ = nullptr;

TEST_F(EvaluationTest, TheReferenceDoesNotDifferFromItself) {
  const auto results = Run({{"f32", ""}});
  ASSERT_EQ(results.size(), 1u);
  const DivergenceSummary& summary = results[0].divergence;
  EXPECT_EQ(summary.num_tokens, 2 * (kContext - 1 - kFirstScored));
  EXPECT_EQ(summary.kl_max, 0.0);
  EXPECT_EQ(summary.top1_agreement, 1.0);
  EXPECT_EQ(summary.perplexity, summary.perplexity_reference);
  EXPECT_GT(summary.perplexity, 1.0);
  EXPECT_EQ(results[0].bits_per_value, 32.0);
  EXPECT_EQ(EndCodeShare(results[0].saturation, KvSide::kKey), 0.0);
}

TEST_F(EvaluationTest, FewerBitsCostMore) {
  const auto results = Run({{"f16", ""}, {"int8", ""}, {"int6", ""}, {"int4", ""}});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[1].kv_cache_dtype, "int8/int8 per_token_head_u8 centered/rotated");
  EXPECT_GT(results[0].divergence.kl_mean, 0.0);
  EXPECT_LT(results[0].divergence.kl_mean, 0.1 * results[1].divergence.kl_mean);
  EXPECT_LT(results[1].divergence.kl_mean, 0.1 * results[2].divergence.kl_mean);
  EXPECT_LT(results[2].divergence.kl_mean, results[3].divergence.kl_mean);
  EXPECT_LT(results[1].divergence.kl_mean, 1e-3);
  for (const EvaluationResult& result : results) {
    EXPECT_EQ(result.divergence.perplexity_reference, results[0].divergence.perplexity_reference);
    EXPECT_LE(result.divergence.kl_median, result.divergence.kl_p99);
    EXPECT_LE(result.divergence.kl_p99, result.divergence.kl_p999);
    EXPECT_LE(result.divergence.kl_p999, result.divergence.kl_max);
  }
}

TEST_F(EvaluationTest, ErrorsOfKeysAndValuesAreCollectedWhereAskedFor) {
  EXPECT_EQ(Run({{"int8", ""}})[0].errors, nullptr);
  EvaluationOptions options = Options({{"f16", ""}, {"int8", ""}, {"int4", ""}, {"int2", ""}});
  options.collect_errors = true;
  const auto results = Evaluate(*model_, Windows(), Calibration(), options);
  ASSERT_TRUE(results) << results.error().message;
  for (int layer = 0; layer < 3; ++layer) {
    for (int head = 0; head < 2; ++head) {
      for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
        const auto error = [&](size_t i) {
          return (*results)[i].errors->Of(layer, head, side).RelativeError();
        };
        // Of Gaussian values: 0.5 % at 8 bits, 10 % at 4, a third at 2.
        EXPECT_LT(error(0), 1e-9);
        EXPECT_GT(error(1), 0.001);
        EXPECT_LT(error(1), 0.02);
        EXPECT_GT(error(2), 0.05);
        EXPECT_LT(error(2), 0.15);
        EXPECT_GT(error(3), 0.25);
        EXPECT_LT(error(3), 0.5);
        // What the model computes does not depend on the format in the first layer, and a rotation
        // keeps no channel as it was.
        const KvErrors::Head& exact = (*results)[0].errors->Of(layer, head, side);
        const KvErrors::Head& rotated = (*results)[1].errors->Of(layer, head, side);
        if (layer == 0) {
          EXPECT_EQ(exact.model_max, rotated.model_max);
        }
        EXPECT_NE(exact.stored_max, rotated.stored_max);
      }
    }
  }
}

// Closed blocks as codes; one f16 tail of 64 tokens and one sink tile of 16 per sequence, whole.
TEST_F(EvaluationTest, EffectiveBitsCountWhatIsHeld) {
  const auto results = Run({{"int8", ""}});
  ASSERT_EQ(results.size(), 1u);
  constexpr double kBlockBytes = 2 * 64 * 2 + 2 * 64 * 64,
                   kExactBytes = (64 + 16) * 64 * 2 * 2;  // one layer and head
  double sum = 0;
  for (int tokens = kFirstScored + 1; tokens < kContext; ++tokens) {
    const double bytes = tokens / 64 * kBlockBytes + kExactBytes;
    sum += 8 * bytes / (2.0 * 64 * tokens);
  }
  EXPECT_DOUBLE_EQ(results[0].bits_per_value, 8.25);
  EXPECT_NEAR(results[0].effective_bits, sum / (kContext - 1 - kFirstScored), 1e-9);
}

TEST_F(EvaluationTest, BucketsDivideThePositions) {
  const auto results = Run({{"int8", ""}});
  ASSERT_EQ(results.size(), 1u);
  int64_t num_tokens = 0;
  double kl = 0;
  int position = kFirstScored;
  for (const LengthBucket& bucket : results[0].buckets) {
    EXPECT_EQ(bucket.begin, position);
    EXPECT_EQ(bucket.divergence.num_tokens, 2 * (bucket.end - bucket.begin));
    position = bucket.end;
    num_tokens += bucket.divergence.num_tokens;
    kl += bucket.divergence.kl_mean * static_cast<double>(bucket.divergence.num_tokens);
  }
  EXPECT_EQ(position, kContext - 1);
  EXPECT_EQ(num_tokens, results[0].divergence.num_tokens);
  EXPECT_NEAR(kl / static_cast<double>(num_tokens), results[0].divergence.kl_mean, 1e-12);
}

TEST_F(EvaluationTest, StaticScalesComeFromTheCalibrationText) {
  const auto results = Run({{"int8", "per_token_head"},
                            {"int8", "per_head"},
                            {"int8", "per_channel/per_token_head"},
                            {"fp8_e4m3", "per_tensor"}});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].calibration, "");
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_NE(results[i].calibration.find(std::to_string(kContext) + " tokens"), std::string::npos)
        << results[i].calibration;
    EXPECT_LT(results[i].divergence.kl_mean, 0.05);
  }
  // Under a scale per token and head the largest of 64 values is an end code; under one for all
  // tokens few are.
  EXPECT_GE(EndCodeShare(results[0].saturation, KvSide::kKey), 1.0 / 64);
  EXPECT_LT(EndCodeShare(results[1].saturation, KvSide::kKey), 0.002);
  EXPECT_LT(results[0].divergence.kl_mean, results[1].divergence.kl_mean);
}

// Ranges that are a third or a quarter of what the text needs, or four times as much, are found and
// named. Where blocks may correct them little is lost; fixed ones are ruined.
TEST_F(EvaluationTest, RangesThatDoNotFitAreNamed) {
  const auto statistics = ObserveModel(*model_, {Calibration()}, {});
  ASSERT_TRUE(statistics) << statistics.error().message;
  const auto run = [&](double factor) {
    CalibrationTable table = MakeCalibrationTable(**statistics, *ParseClipRule("max"));
    for (CalibratedLayer& layer : table.layers) {
      for (CalibratedSide* side : {&layer.k, &layer.v}) {
        for (double& range : side->rotated_ranges) range *= factor;
      }
    }
    EvaluationOptions options = Options({{"int8", "per_head"}, {"int8", "per_head:fixed"}});
    options.cache.calibration = std::make_shared<const CalibrationTable>(std::move(table));
    auto results = Evaluate(*model_, Windows(), {}, options);
    EXPECT_TRUE(results) << results.error().message;
    return results.value_or(std::vector<EvaluationResult>(2));
  };
  const auto warns = [](const EvaluationResult& result, std::string_view of) {
    return std::ranges::any_of(result.saturation_warnings, [of](const std::string& line) {
      return line.find(of) != std::string::npos;
    });
  };
  const auto sound = run(1), quarter = run(0.25), third = run(1 / 3.0), fourfold = run(4);
  EXPECT_FALSE(warns(sound[0], "values reach only"));
  EXPECT_FALSE(warns(sound[1], "at the ends of the range"));
  EXPECT_TRUE(warns(quarter[0], "times the range"));
  EXPECT_TRUE(warns(quarter[1], "at the ends of the range"));
  EXPECT_TRUE(warns(fourfold[0], "values reach only"));
  EXPECT_TRUE(warns(fourfold[1], "values reach only"));
  EXPECT_EQ(NumCorrectedBlocks(third[0].saturation, KvSide::kKey), NumBlocks(third[0].saturation));
  EXPECT_LT(third[0].divergence.kl_mean, 1.5 * sound[0].divergence.kl_mean);
  EXPECT_GT(third[1].divergence.kl_mean, 100 * sound[1].divergence.kl_mean);
}

// Keys of random weights have much the same spread in every channel: balance changes little, but
// it must not cost anything.
TEST_F(EvaluationTest, BalancedKeysTakeTheirFactorsFromTheCalibrationText) {
  const auto results = Run({{"int4", ""}, {.kv_cache_dtype = "int4", .kv_transform = "balanced"}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].kv_cache_dtype, "int4/int4 per_token_head_u8 balanced/rotated");
  EXPECT_EQ(results[1].bits_per_value, results[0].bits_per_value);
  EXPECT_NE(results[1].divergence.kl_mean, results[0].divergence.kl_mean);
  EXPECT_LT(results[1].divergence.kl_mean, 1.3 * results[0].divergence.kl_mean);
}

// Formats of single layers belong to the candidates; the reference stays exact, and layers with
// their own format get their own static scales or none.
TEST_F(EvaluationTest, FormatsOfSingleLayers) {
  const auto plain = Run({{"int8", ""}, {"int8", "per_head"}});
  EvaluationOptions options = Options({{"int8", ""}, {"int8", "per_head"}, {"f16", ""}});
  options.cache.kv_cache_dtype_layers = "0-1:f16";
  const auto mixed = Evaluate(*model_, Windows(), Calibration(), options);
  ASSERT_TRUE(mixed) << mixed.error().message;
  ASSERT_EQ(plain.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*mixed)[i].divergence.perplexity_reference,
              plain[i].divergence.perplexity_reference);
    EXPECT_LT((*mixed)[i].divergence.kl_mean, plain[i].divergence.kl_mean);
    EXPECT_GT((*mixed)[i].bits_per_value, plain[i].bits_per_value);
  }
  EXPECT_LT((*mixed)[2].divergence.kl_mean, (*mixed)[0].divergence.kl_mean);
}

TEST_F(EvaluationTest, Refusals) {
  const auto error_of = [](const EvaluationOptions& options,
                           const std::vector<int32_t>& calibration) {
    const auto results = Evaluate(*model_, Windows(), calibration, options);
    EXPECT_FALSE(results);
    return results ? Error{} : results.error();
  };
  EXPECT_NE(error_of(Options({{"int8", "per_head"}}), {}).message.find("--calibration-text"),
            std::string::npos);
  EXPECT_NE(error_of(Options({{.kv_cache_dtype = "int4", .kv_transform = "balanced"}}), {})
                .message.find("--kv-scales"),
            std::string::npos);
  EXPECT_NE(error_of(Options({{"int9", ""}}), Calibration()).message.find("int9"),
            std::string::npos);
  EXPECT_EQ(error_of(Options({{"f16", "per_head"}}), Calibration()).code, ErrorCode::kUnsupported);
  EvaluationOptions forks = Options({{"recipe:keep128", ""}});
  forks.sequences = 2;
  EXPECT_EQ(error_of(forks, {}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(error_of(Options({{"recipe:keep100", ""}}), {}).code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error_of(Options({{"recipe:keep128_int9", ""}}), {}).message.find("recipe:int9"),
            std::string::npos);
  EXPECT_EQ(error_of(Options({{"recipe:keep128_q8_0_at_once", ""}}), {}).code,
            ErrorCode::kUnsupported);
  EvaluationOptions nothing_scored = Options({{"int8", ""}});
  nothing_scored.first_scored = kContext - 1;
  EXPECT_EQ(error_of(nothing_scored, {}).code, ErrorCode::kInvalidArgument);
  const std::atomic<bool> stop = true;
  EvaluationOptions stopped = Options({{"int8", ""}});
  stopped.stop = &stop;
  EXPECT_EQ(error_of(stopped, {}).code, ErrorCode::kInterrupted);
}

TEST_F(EvaluationTest, WindowsAreSpreadOverTheText) {
  const std::string text = Text(1000, 3);
  const auto one = MakeWindows(**model_, text, 1, 100);
  const auto four = MakeWindows(**model_, text, 4, 100);
  ASSERT_TRUE(one && four);
  ASSERT_EQ(four->size(), 4u);
  EXPECT_EQ(four->front(), one->front());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*four)[i].size(), 100u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE((*four)[i], (*four)[j]);
  }
  const auto too_short = MakeWindows(**model_, "a few words only", 1, 100);
  ASSERT_FALSE(too_short);
  EXPECT_EQ(too_short.error().code, ErrorCode::kInvalidArgument);
}

// Our 8 and 4 bits against llama.cpp's rules: the same blocks, fewer bits, less lost.
TEST_F(EvaluationTest, RecipesStandBesideFormats) {
  const auto results =
      Run({{"recipe:q8_0", ""}, {"int8", ""}, {"recipe:q4_0", ""}, {"recipe:q4_0_at_once", ""}});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].kv_cache_dtype, "recipe:q8_0");
  EXPECT_EQ(results[0].bits_per_value, 8.5);
  EXPECT_GT(results[0].effective_bits, results[1].effective_bits);  // 8.25 bits and the same tail
  EXPECT_EQ(results[3].effective_bits, 4.5);                        // no tail
  EXPECT_GT(results[0].divergence.kl_mean, 0);
  EXPECT_GT(results[2].divergence.kl_mean, 10 * results[0].divergence.kl_mean);
  EXPECT_GT(results[3].divergence.kl_mean, results[2].divergence.kl_mean);
}

// Blocks of 64 tokens: from 192 tokens on a third closed block has to go. f16 otherwise.
TEST_F(EvaluationTest, EvictionStandsBesideFormats) {
  const auto results = Run({{"f16", ""},
                            {"recipe:keep320", ""},
                            {"recipe:keep128", ""},
                            {"recipe:keep128_newest", ""},
                            {"recipe:int4", ""},
                            {"recipe:keep320_int4", ""}});
  ASSERT_EQ(results.size(), 6u);
  EXPECT_EQ(results[2].kv_cache_dtype, "recipe:keep128");
  EXPECT_LT(results[1].divergence.kl_mean, results[0].divergence.kl_mean);  // exact, all there
  EXPECT_GT(results[2].divergence.kl_mean, 1e-4);
  // Two blocks: the first and the newest, whatever their scores are.
  EXPECT_EQ(results[2].divergence.kl_mean, results[3].divergence.kl_mean);
  EXPECT_EQ(results[1].effective_bits, results[0].effective_bits);
  constexpr double kTailBits = 16.0 * 64;
  double sum = 0;
  for (int tokens = kFirstScored + 1; tokens < kContext; ++tokens) {
    sum += (16.0 * 64 * std::min(2, tokens / 64) + kTailBits) / tokens;
  }
  EXPECT_NEAR(results[2].effective_bits, sum / (kContext - 1 - kFirstScored), 1e-9);
  // The same codes, read by other sums.
  EXPECT_NEAR(results[5].divergence.kl_mean / results[4].divergence.kl_mean, 1, 1e-3);
  EXPECT_EQ(results[5].effective_bits, results[4].effective_bits);
  EXPECT_EQ(results[5].bits_per_value, 4.1875);
}

TEST_F(EvaluationTest, TemperatureIsTheCandidatesOwn) {
  const auto at = [](double temperature) {
    return EvaluationCandidate{.kv_cache_dtype = "f32", .softmax_temperature = temperature};
  };
  const auto results = Run({at(1), at(0.8), at(0.9), at(1.1)});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].divergence.kl_max, 0.0);
  EXPECT_EQ(results[2].kv_cache_dtype, "f32/f32 none, temperature 0.9");
  EXPECT_GT(results[2].divergence.kl_mean, 0.0);
  EXPECT_GT(results[3].divergence.kl_mean, 0.0);
  EXPECT_GT(results[1].divergence.kl_mean, 2 * results[2].divergence.kl_mean);
}

TEST_F(EvaluationTest, TuneMeasuresPlansWithinTheBudget) {
  TuningOptions options;
  options.budget_bits = 5;
  options.evaluation = Options({});
  const auto tuning = Tune(*model_, Windows(), options);
  ASSERT_TRUE(tuning) << tuning.error().message;
  EXPECT_EQ(tuning->sensitivities.k.size(), 3u);
  EXPECT_EQ(tuning->sensitivities.v.size(), 3u);
  // More bits, less lost; the probe format (int4, the second one) has weight 1.
  EXPECT_EQ(tuning->weights.k[1], 1.0);
  EXPECT_GT(tuning->weights.k[0], 2.0);
  EXPECT_LT(tuning->weights.v[4], 0.1);
  ASSERT_GE(tuning->plans.size(), 4u);
  bool by_sensitivity = false;
  for (size_t i = 0; i < tuning->plans.size(); ++i) {
    const MeasuredPlan& plan = tuning->plans[i];
    EXPECT_EQ(plan.layers.size(), 3u);
    EXPECT_LE(plan.result.bits_per_value, 5.0) << plan.name;
    by_sensitivity = by_sensitivity || plan.name == "by sensitivity";
    if (i == 0) continue;
    EXPECT_GE(plan.result.divergence.kl_mean, tuning->plans[i - 1].result.divergence.kl_mean);
  }
  EXPECT_TRUE(by_sensitivity);

  // The KL of that plan as the limit: no more bits are needed to keep it.
  options.max_kl = tuning->plans[0].result.divergence.kl_mean;
  options.budget_bits = 0;
  const auto fewest = Tune(*model_, Windows(), options);
  ASSERT_TRUE(fewest) << fewest.error().message;
  EXPECT_LE(fewest->plans[0].result.divergence.kl_mean, options.max_kl);
  EXPECT_LE(fewest->plans[0].result.bits_per_value, 5.5);
}

TEST_F(EvaluationTest, TuneRefusesWhatCannotBe) {
  const auto error = [&](double bits, double kl, std::vector<std::string> formats) {
    TuningOptions options;
    options.budget_bits = bits;
    options.max_kl = kl;
    if (!formats.empty()) options.formats = std::move(formats);
    options.evaluation = Options({});
    const auto tuning = Tune(*model_, Windows(), options);
    EXPECT_FALSE(tuning);
    return tuning ? "" : tuning.error().message;
  };
  EXPECT_NE(error(3, 0, {}).find("int3 alone has 3."), std::string::npos);
  EXPECT_NE(error(0, 0, {}).find("either a budget"), std::string::npos);
  EXPECT_NE(error(5, 1, {}).find("either a budget"), std::string::npos);
  EXPECT_NE(error(5, 0, {"int4"}).find("at least two"), std::string::npos);
  EXPECT_NE(error(5, 0, {"int3", "int8"}).find("probe format int4"), std::string::npos);
  EXPECT_NE(error(5, 0, {"int4", "int9"}).find("int9"), std::string::npos);
  EXPECT_NE(error(5, 0, {"int8", "int4"}).find("in order"), std::string::npos);
}

TEST_F(EvaluationTest, AnswersPartWhereTheCacheIsCoarse) {
  FreeRunningOptions options;
  options.evaluation = Options({{"f16", ""}, {"int2", ""}});
  options.max_tokens = 100;
  std::vector<std::vector<int32_t>> prompts = Windows();
  prompts.push_back({prompts[0].begin(), prompts[0].begin() + 200});
  int64_t answers = 0;
  options.evaluation.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, ++answers);
    EXPECT_EQ(total, 12);
  };
  const auto results = RunFree(*model_, prompts, options);
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ(answers, 12);
  const FreeRunningResult &control = (*results)[0], &coarse = (*results)[2];
  EXPECT_EQ(control.num_identical, 3);
  EXPECT_EQ(control.mean_edit_distance, 0.0);
  EXPECT_NEAR(control.bleu, 100, 1e-9);
  EXPECT_EQ(control.rouge_l, 1.0);
  EXPECT_EQ(coarse.first_difference.size(), 3u);
  EXPECT_LT(coarse.mean_first_difference, (*results)[1].mean_first_difference);
  EXPECT_LT(coarse.num_identical, 3);
  EXPECT_GT(coarse.mean_edit_distance, 0.0);
  EXPECT_LT(coarse.bleu, 100 - 1e-3);
  EXPECT_LT(coarse.rouge_l, 1.0);
  EXPECT_GT(coarse.rouge_l, 0.0);

  EXPECT_FALSE(RunFree(*model_, {}, options));
  EXPECT_FALSE(RunFree(*model_, {{}}, options));
}

}  // namespace
}  // namespace turboquant
