#include "calibration/kv_plan.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "codec/kv_cache_spec.h"
#include "model/fingerprint_json.h"
#include "base/json_text.h"

namespace turboquant {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "turboquant-kv-plan";
constexpr int kVersion = 1;

std::string Digest(const std::vector<std::string>& layers) {
  Hasher hasher;
  for (const std::string& layer : layers) hasher.Add(layer);
  return hasher.Hex();
}

Result<std::vector<std::string>> ReadLayers(const Json& json, int num_layers) {
  if (!json.is_array()) return Fail(ErrorCode::kInvalidArgument, "no layers");
  if (json.size() != static_cast<size_t>(num_layers)) {
    return Fail(ErrorCode::kInvalidArgument, "{} layers, the model has {}", json.size(),
                num_layers);
  }
  std::vector<std::string> layers;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_string()) {
      return Fail(ErrorCode::kInvalidArgument, "layer {}: {} is no format", i, Shown(json[i]));
    }
    layers.push_back(json[i].get<std::string>());
    if (const auto sides = ParseKvFormat(layers.back(), "", "", nullptr); !sides) {
      return Fail(sides.error().code, "layer {}: {}", i, sides.error().message);
    }
  }
  return layers;
}

Result<KvPlan> Read(const Json& document) {
  if (!document.is_object() || document.value("format", Json()) != kFormat) {
    return Fail(ErrorCode::kInvalidArgument, "not a plan (no \"format\": \"{}\")", kFormat);
  }
  if (document.value("version", Json()) != kVersion) {
    return Fail(ErrorCode::kInvalidArgument,
                "version {} of the file format; this program reads version {}",
                Shown(document.value("version", Json())), kVersion);
  }
  KvPlan plan;
  TQ_ASSIGN_OR_RETURN(plan.model, ParseFingerprint(document.value("model", Json())));
  TQ_ASSIGN_OR_RETURN(plan.layers,
                      ReadLayers(document.value("layers", Json()), plan.model.num_layers));
  if (document.value("digest", Json()) != Digest(plan.layers)) {
    return Fail(ErrorCode::kInvalidArgument,
                "the layers do not match the digest: the file was changed after it was written");
  }
  const Json bits = document.value("bits_per_value", Json());
  const Json made_by = document.value("made_by", Json());
  if (!bits.is_number() || !made_by.is_string()) {
    return Fail(ErrorCode::kInvalidArgument, "no \"bits_per_value\" or \"made_by\"");
  }
  plan.bits_per_value = bits.get<double>();
  plan.made_by = made_by.get<std::string>();
  return plan;
}

}  // namespace

Status KvPlan::CheckModel(const ModelFingerprint& other) const {
  return CheckSameModel("the plan", model, other);
}

std::string LayerOverrides(const std::vector<std::string>& layers) {
  std::string text;
  for (size_t first = 0, end = 0; first < layers.size(); first = end) {
    while (end < layers.size() && layers[end] == layers[first]) ++end;
    text += first == 0 ? "" : ",";
    text += end - first == 1 ? fmt::format("{}:{}", first, layers[first])
                             : fmt::format("{}-{}:{}", first, end - 1, layers[first]);
  }
  return text;
}

std::string KvPlan::ToOverrides() const { return LayerOverrides(layers); }

std::string ToJson(const KvPlan& plan) {
  const Json document = {{"format", kFormat},
                         {"version", kVersion},
                         {"model", ToJson(plan.model)},
                         {"made_by", plan.made_by},
                         {"bits_per_value", plan.bits_per_value},
                         {"digest", Digest(plan.layers)},
                         {"layers", plan.layers}};
  return document.dump(1, ' ', true) + "\n";
}

Result<KvPlan> ParseKvPlan(const std::string& json, const std::string& path) {
  TQ_RETURN_IF_ERROR(CheckJson(json, path));
  auto plan = Read(Json::parse(json));
  if (!plan) return Fail(plan.error().code, "{}: {}", path, plan.error().message);
  return plan;
}

}  // namespace turboquant
