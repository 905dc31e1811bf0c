#include "calibration/kv_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace turboquant {
namespace {

using testing::HasSubstr;

KvPlan Plan() {
  return {.model = {.architecture = "llama",
                    .num_layers = 4,
                    .num_kv_heads = 2,
                    .head_dim = 64,
                    .tensor_hash = "ab",
                    .tokenizer_hash = "cd"},
          .layers = {"int6/int4", "int4", "int4", "f16"},
          .bits_per_value = 6.5,
          .made_by = "hand"};
}

std::string ErrorOf(const std::string& json) {
  const auto plan = ParseKvPlan(json, "p.json");
  EXPECT_FALSE(plan);
  return plan ? "" : plan.error().message;
}

// The file of Plan() with one field replaced.
std::string With(const char* key, const nlohmann::ordered_json& value) {
  auto document = nlohmann::ordered_json::parse(ToJson(Plan()));
  document[key] = value;
  return document.dump();
}

TEST(KvPlan, ComesBackAsItWas) {
  const auto plan = ParseKvPlan(ToJson(Plan()), "p.json");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(*plan, Plan());
}

TEST(KvPlan, OverridesJoinEqualLayers) {
  EXPECT_EQ(Plan().ToOverrides(), "0:int6/int4,1-2:int4,3:f16");
  EXPECT_EQ(LayerOverrides({"int4"}), "0:int4");
}

TEST(KvPlan, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("p.json"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("not a plan"));
  EXPECT_THAT(ErrorOf(With("format", "x")), HasSubstr("not a plan"));
  EXPECT_THAT(ErrorOf(With("version", 2)), HasSubstr("version 2"));
  EXPECT_THAT(ErrorOf(With("model", {{"architecture", "llama"}})), HasSubstr("incomplete"));
  EXPECT_THAT(ErrorOf(With("layers", {"int4"})), HasSubstr("1 layers, the model has 4"));
  EXPECT_THAT(ErrorOf(With("layers", {"int4", "int4", 7, "int4"})), HasSubstr("layer 2: 7"));
  EXPECT_THAT(ErrorOf(With("layers", {"int4", "int9", "int4", "int4"})), HasSubstr("layer 1: "));
  EXPECT_THAT(ErrorOf(With("layers", {"int4", "int4", "int4", "int4"})), HasSubstr("digest"));
  EXPECT_THAT(ErrorOf(With("bits_per_value", "many")), HasSubstr("bits_per_value"));
}

TEST(KvPlan, BelongsToOneModel) {
  ModelFingerprint other = Plan().model;
  EXPECT_TRUE(Plan().CheckModel(other));
  other.tensor_hash = "ef";
  const Status status = Plan().CheckModel(other);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("the plan was made for another model: weights"));
}

}  // namespace
}  // namespace turboquant
