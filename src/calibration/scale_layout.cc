#include "calibration/scale_layout.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/check.h"
#include "codec/fp8.h"
#include "base/json_text.h"
#include "base/printable_text.h"

namespace turboquant {
namespace {

using nlohmann::json;

constexpr int kMaxLayers = 1024;
constexpr int kMaxRanks = 1024;
constexpr std::string_view kDtype = "float8_e4m3fn";
constexpr std::string_view kLayerPrefix = "model.layers.";

struct TensorNames {
  ScaleLayout layout;
  std::string_view k, v;  // behind "model.layers.N."; the same where there is one factor
};
constexpr std::array kTensorNames = {
    TensorNames{ScaleLayout::kSelfAttn, "self_attn.k_scale", "self_attn.v_scale"},
    TensorNames{ScaleLayout::kAttn, "self_attn.attn.k_scale", "self_attn.attn.v_scale"},
    TensorNames{ScaleLayout::kProj, "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"},
    TensorNames{ScaleLayout::kKvScale, "self_attn.kv_scale", "self_attn.kv_scale"},
};

const TensorNames& NamesOf(ScaleLayout layout) {
  for (const TensorNames& names : kTensorNames) {
    if (names.layout == layout) return names;
  }
  CHECK(false);
  return kTensorNames[0];
}

// "0", "17": an index as it is written by a program, below `end`. "01" would be a second name
// for 1.
std::optional<int> ParseIndex(std::string_view text, int end) {
  int index = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || last != text.data() + text.size() || index < 0 || index >= end ||
      std::to_string(index) != text) {
    return std::nullopt;
  }
  return index;
}

// The layer and what follows of "model.layers.N.REST".
struct TensorName {
  int layer;
  std::string_view rest;
};
std::optional<TensorName> ParseTensorName(std::string_view name) {
  if (!name.starts_with(kLayerPrefix)) return std::nullopt;
  name.remove_prefix(kLayerPrefix.size());
  const size_t dot = name.find('.');
  if (dot == name.npos) return std::nullopt;
  const auto layer = ParseIndex(name.substr(0, dot), kMaxLayers);
  if (!layer) return std::nullopt;
  return TensorName{*layer, name.substr(dot + 1)};
}

std::string FullName(int layer, std::string_view rest) {
  return fmt::format("{}{}.{}", kLayerPrefix, layer, rest);
}

// Reads one document; every failure names the path and the place inside.
class Reader {
 public:
  Reader(const json& document, const std::string& path) : document_(document), path_(path) {}
  Result<EngineScales> ReadKvCacheScales() const;
  Result<EngineScales> ReadTensors(const TensorNames& names) const;

 private:
  template <typename... Args>
  std::unexpected<Error> Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorCode::kInvalidArgument, "{}: {}", path_,
                fmt::format(format, std::forward<Args>(args)...));
  }
  Result<float> ReadScale(const json& value, const std::string& place) const;
  Status CheckDtype(const json& kv_cache) const;
  Result<std::vector<float>> ReadRank(const json& layers, int rank) const;
  Result<std::vector<float>> FillLayers(const std::map<int, float>& found, std::string_view name,
                                        int num_layers) const;

  const json& document_;
  const std::string& path_;
};

Result<float> Reader::ReadScale(const json& value, const std::string& place) const {
  if (!value.is_number()) return Bad("{} is {}: want a number", place, Shown(value));
  const double number = value.get<double>();
  // So that a table takes the range (calibration_table.cc), also after rounding to a float.
  const double range = number * static_cast<double>(kMaxFp8E4m3);
  if (!(range >= 0x1.00001p-100 && range <= 0x1.ffffep99)) {
    return Bad("{} is {}: want a scale above 0 (2.0e-33 to 2.8e27)", place, Shown(value));
  }
  return static_cast<float>(number);
}

Status Reader::CheckDtype(const json& kv_cache) const {
  const json dtype = kv_cache.value("dtype", json());
  if (dtype == kDtype) return {};
  if (dtype == "float8_e4m3fnuz") {
    return Bad(
        "the scales are of float8_e4m3fnuz (ROCm; its largest code is 240, not 448): only {} "
        "is read",
        kDtype);
  }
  return Bad("kv_cache.dtype is {}: only {} is read", Shown(dtype), kDtype);
}

Result<std::vector<float>> Reader::ReadRank(const json& layers, int rank) const {
  if (!layers.is_object()) {
    return Bad("rank {} is {}: want an object of layers", rank, Shown(layers));
  }
  std::vector<float> scales(layers.size());
  for (const auto& [key, value] : layers.items()) {
    const auto layer = ParseIndex(key, kMaxLayers);
    if (!layer) {
      return Bad("rank {}: '{}' is no number of a layer (0 to {})", rank, PrintableText(key),
                 kMaxLayers - 1);
    }
    if (static_cast<size_t>(*layer) >= scales.size()) {
      int missing = 0;
      while (layers.contains(std::to_string(missing))) ++missing;
      return Bad("rank {}: layer {} is there and layer {} is missing", rank, *layer, missing);
    }
    TQ_ASSIGN_OR_RETURN(scales[static_cast<size_t>(*layer)],
                        ReadScale(value, fmt::format("rank {}, layer {}", rank, *layer)));
  }
  if (scales.empty()) return Bad("rank {}: no layers", rank);
  return scales;
}

Result<EngineScales> Reader::ReadKvCacheScales() const {
  if (!document_.is_object() || !document_.contains("kv_cache") ||
      !document_["kv_cache"].is_object()) {
    return Bad("no object \"kv_cache\", which layout kv_cache_scales has");
  }
  EngineScales scales;
  if (document_.contains("model_type") && !document_["model_type"].is_null()) {
    const json& type = document_["model_type"];
    if (!type.is_string()) return Bad("model_type is {}: want text or null", Shown(type));
    scales.model_type = type.get<std::string>();
  }
  const json& kv_cache = document_["kv_cache"];
  TQ_RETURN_IF_ERROR(CheckDtype(kv_cache));
  if (!kv_cache.contains("scaling_factor") || !kv_cache["scaling_factor"].is_object()) {
    return Bad("no object kv_cache.scaling_factor");
  }
  const json& ranks = kv_cache["scaling_factor"];
  for (const auto& [key, value] : ranks.items()) {
    if (!ParseIndex(key, kMaxRanks)) {
      return Bad("'{}' is no number of a tensor-parallel rank (0 to {})", PrintableText(key),
                 kMaxRanks - 1);
    }
  }
  if (ranks.empty()) return Bad("no tensor-parallel ranks");
  scales.num_parts = static_cast<int>(ranks.size());
  for (int rank = 0; rank < scales.num_parts; ++rank) {
    const auto found = ranks.find(std::to_string(rank));
    if (found == ranks.end()) return Bad("{} ranks, and rank {} is missing", ranks.size(), rank);
    TQ_ASSIGN_OR_RETURN(const std::vector<float> layers, ReadRank(*found, rank));
    if (rank == 0) scales.layers.resize(layers.size());
    if (layers.size() != scales.layers.size()) {
      return Bad("rank {} has {} layers, rank 0 has {}", rank, layers.size(), scales.layers.size());
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      scales.layers[i].k.push_back(layers[i]);
      scales.layers[i].v.push_back(layers[i]);
    }
  }
  return scales;
}

// By layer; `name` is what each has to have.
Result<std::vector<float>> Reader::FillLayers(const std::map<int, float>& found,
                                              std::string_view name, int num_layers) const {
  std::vector<float> scales;
  for (int layer = 0; layer < num_layers; ++layer) {
    const auto it = found.find(layer);
    if (it == found.end()) {
      return Bad("no {}, and there are scales up to layer {}", FullName(layer, name),
                 num_layers - 1);
    }
    scales.push_back(it->second);
  }
  return scales;
}

Result<EngineScales> Reader::ReadTensors(const TensorNames& names) const {
  if (!document_.is_object()) return Bad("want an object of tensor names and numbers");
  std::map<int, float> k, v;
  int num_layers = 0;
  for (const auto& [key, value] : document_.items()) {
    const auto name = ParseTensorName(key);
    if (!name || (name->rest != names.k && name->rest != names.v)) {
      return Bad("'{}' is no name of layout {}, which has {}N.{}", PrintableText(key, 100),
                 Name(names.layout), kLayerPrefix, names.k);
    }
    TQ_ASSIGN_OR_RETURN(const float scale, ReadScale(value, key));
    (name->rest == names.k ? k : v)[name->layer] = scale;
    num_layers = std::max(num_layers, name->layer + 1);
  }
  if (num_layers == 0) return Bad("no scales");
  if (names.k == names.v) v = k;
  EngineScales scales;
  TQ_ASSIGN_OR_RETURN(const auto k_scales, FillLayers(k, names.k, num_layers));
  TQ_ASSIGN_OR_RETURN(const auto v_scales, FillLayers(v, names.v, num_layers));
  for (size_t i = 0; i < k_scales.size(); ++i) {
    scales.layers.push_back({.k = {k_scales[i]}, .v = {v_scales[i]}});
  }
  return scales;
}

nlohmann::ordered_json KvCacheScalesDocument(const EngineScales& scales) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::object();
  for (size_t rank = 0; rank < static_cast<size_t>(scales.num_parts); ++rank) {
    nlohmann::ordered_json& layers = ranks[std::to_string(rank)];
    for (size_t i = 0; i < scales.layers.size(); ++i) {
      layers[std::to_string(i)] = ShortestDouble(scales.layers[i].k[rank]);
    }
  }
  nlohmann::ordered_json type;  // null
  if (!scales.model_type.empty()) type = scales.model_type;
  return {{"model_type", type},
          {"kv_cache", {{"dtype", kDtype}, {"scaling_factor", std::move(ranks)}}}};
}

}  // namespace

std::string_view Name(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::kTurboquant:
      return "turboquant";
    case ScaleLayout::kKvCacheScales:
      return "kv_cache_scales";
    case ScaleLayout::kSelfAttn:
      return "self_attn";
    case ScaleLayout::kAttn:
      return "attn";
    case ScaleLayout::kProj:
      return "proj";
    case ScaleLayout::kKvScale:
      return "kv_scale";
  }
  return "";
}

ScaleLayout ScaleLayoutOf(std::string_view name) {
  for (const ScaleLayout layout : kAllScaleLayouts) {
    if (Name(layout) == name) return layout;
  }
  CHECK(false);
  return ScaleLayout::kTurboquant;
}

Result<ScaleLayout> DetectScaleLayout(const json& document, const std::string& path) {
  if (document.is_object()) {
    if (document.contains("format")) return ScaleLayout::kTurboquant;
    if (document.contains("kv_cache")) return ScaleLayout::kKvCacheScales;
    for (const auto& [key, value] : document.items()) {
      const auto name = ParseTensorName(key);
      for (const TensorNames& names : kTensorNames) {
        if (name && (name->rest == names.k || name->rest == names.v)) return names.layout;
      }
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              "{}: holds no scales: neither a table of turboquant calibrate nor \"kv_cache\" nor "
              "names as model.layers.0.self_attn.k_scale",
              path);
}

Result<EngineScales> ReadEngineScales(const json& document, ScaleLayout layout,
                                      const std::string& path) {
  CHECK(layout != ScaleLayout::kTurboquant);
  const Reader reader(document, path);
  if (layout == ScaleLayout::kKvCacheScales) return reader.ReadKvCacheScales();
  return reader.ReadTensors(NamesOf(layout));
}

std::string ToJson(const EngineScales& scales, ScaleLayout layout) {
  if (HasOneFactorForKAndV(layout)) {
    for (const LayerScales& layer : scales.layers) CHECK(layer.k == layer.v);
  }
  if (layout == ScaleLayout::kKvCacheScales) return KvCacheScalesDocument(scales).dump(1) + "\n";
  CHECK_EQ(scales.num_parts, 1);
  const TensorNames& names = NamesOf(layout);
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  for (size_t i = 0; i < scales.layers.size(); ++i) {
    const int layer = static_cast<int>(i);
    document[FullName(layer, names.k)] = ShortestDouble(scales.layers[i].k[0]);
    document[FullName(layer, names.v)] = ShortestDouble(scales.layers[i].v[0]);
  }
  return document.dump(1) + "\n";
}

double ShortestDouble(float number) {
  return std::strtod(fmt::format("{}", number).c_str(), nullptr);
}

}  // namespace turboquant
