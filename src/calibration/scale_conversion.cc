#include "calibration/scale_conversion.h"

#include <algorithm>

#include "base/check.h"
#include "codec/fp8.h"
#include "base/printable_text.h"

namespace turboquant {
namespace {

constexpr auto kLargestCode = static_cast<double>(kMaxFp8E4m3);

// How many layers got a larger scale than they had, and by how much at most.
class Widening {
 public:
  void Add(size_t layer, float had, float got) {
    if (had == got) return;
    if (num_layers_ == 0 || layer != last_layer_) ++num_layers_;
    last_layer_ = layer;
    ratio_ = std::max(ratio_, static_cast<double>(got) / static_cast<double>(had));
  }
  void Note(std::string_view what, size_t num_layers, LossNotes* notes) const {
    if (num_layers_ == 0) return;
    notes->push_back(
        fmt::format("{}: the largest is taken, which changes {} of {} layers, by a "
                    "factor of up to {:.3g}",
                    what, num_layers_, num_layers, ratio_));
  }

 private:
  size_t num_layers_ = 0, last_layer_ = 0;
  double ratio_ = 1;
};

// [num_parts] of [n], where one divides the other.
std::vector<float> Regroup(const std::vector<float>& scales, size_t num_parts, size_t layer,
                           Widening* widening) {
  std::vector<float> parts(num_parts);
  if (num_parts >= scales.size()) {
    const size_t repeat = num_parts / scales.size();
    for (size_t i = 0; i < num_parts; ++i) parts[i] = scales[i / repeat];
    return parts;
  }
  const size_t together = scales.size() / num_parts;
  for (size_t i = 0; i < scales.size(); ++i) {
    parts[i / together] = std::max(parts[i / together], scales[i]);
  }
  for (size_t i = 0; i < scales.size(); ++i) widening->Add(layer, scales[i], parts[i / together]);
  return parts;
}

}  // namespace

EngineScales ScalesOfTable(const CalibrationTable& table) {
  const auto scales_of = [](const CalibratedSide& side) {
    std::vector<float> scales;
    for (const double range : side.ranges) {
      scales.push_back(static_cast<float>(range / kLargestCode));
    }
    return scales;
  };
  EngineScales scales = {
      .model_type = table.model.architecture, .num_parts = table.model.num_kv_heads, .layers = {}};
  for (const CalibratedLayer& layer : table.layers) {
    scales.layers.push_back({.k = scales_of(layer.k), .v = scales_of(layer.v)});
  }
  return scales;
}

Result<EngineScales> WithParts(const EngineScales& scales, int num_parts, LossNotes* notes) {
  CHECK(num_parts >= 1 && scales.num_parts >= 1);
  if (num_parts % scales.num_parts != 0 && scales.num_parts % num_parts != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "scales of {} equal shares of the KV heads cannot be made into scales of {}: one "
                "number has to divide the other",
                scales.num_parts, num_parts);
  }
  EngineScales result = {.model_type = scales.model_type, .num_parts = num_parts, .layers = {}};
  Widening widening;
  for (size_t i = 0; i < scales.layers.size(); ++i) {
    const auto parts = static_cast<size_t>(num_parts);
    result.layers.push_back({.k = Regroup(scales.layers[i].k, parts, i, &widening),
                             .v = Regroup(scales.layers[i].v, parts, i, &widening)});
  }
  widening.Note(fmt::format("{} scales of a layer and side become {}", scales.num_parts, num_parts),
                scales.layers.size(), notes);
  return result;
}

EngineScales WithOneFactor(EngineScales scales, LossNotes* notes) {
  Widening widening;
  for (size_t i = 0; i < scales.layers.size(); ++i) {
    LayerScales& layer = scales.layers[i];
    for (size_t part = 0; part < layer.k.size(); ++part) {
      const float larger = std::max(layer.k[part], layer.v[part]);
      widening.Add(i, layer.k[part], larger);
      widening.Add(i, layer.v[part], larger);
      layer.k[part] = layer.v[part] = larger;
    }
  }
  widening.Note("K and V share one factor", scales.layers.size(), notes);
  return scales;
}

Status CheckScalesFit(const EngineScales& scales, const ModelFingerprint& model) {
  if (scales.layers.size() != static_cast<size_t>(model.num_layers)) {
    return Fail(ErrorCode::kInvalidArgument, "scales of {} layers, the model has {}",
                scales.layers.size(), model.num_layers);
  }
  // GGUF files name Mistral models llama.
  const std::string& type = scales.model_type;
  if (!type.empty() && type != model.architecture &&
      !(type == "mistral" && model.architecture == "llama")) {
    return Fail(ErrorCode::kInvalidArgument, "scales of a model of type {}, the model is {}",
                PrintableText(type), model.architecture);
  }
  return {};
}

Result<CalibrationTable> TableOfScales(const EngineScales& scales, const ModelFingerprint& model,
                                       const std::string& source, LossNotes* notes) {
  TQ_RETURN_IF_ERROR(CheckScalesFit(scales, model));
  TQ_ASSIGN_OR_RETURN(const EngineScales heads, WithParts(scales, model.num_kv_heads, notes));
  const auto side_of = [](const std::vector<float>& head_scales) {
    CalibratedSide side;
    for (const float scale : head_scales) {
      side.ranges.push_back(static_cast<double>(scale) * kLargestCode);  // exact
    }
    return side;
  };
  CalibrationTable table;
  table.model = model;
  table.clip_rule = kImported;
  table.texts = {source};
  for (const LayerScales& layer : heads.layers) {
    table.layers.push_back({.k = side_of(layer.k), .v = side_of(layer.v)});
  }
  return table;
}

}  // namespace turboquant
