// Files in which other engines keep the scales of an FP8 KV cache: vLLM's kv_cache_scales.json and
// the names that checkpoints give to their scale tensors, as {name: number} (docs/formats/
// scale-files.md). Reading is fail-closed: what is missing, twice, of the wrong type or out of
// range is an error that names the place.
#ifndef TURBOQUANT_CALIBRATION_SCALE_LAYOUT_H_
#define TURBOQUANT_CALIBRATION_SCALE_LAYOUT_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace turboquant {

enum class ScaleLayout : uint8_t {
  kTurboquant,     // our own table, calibration/calibration_table.h
  kKvCacheScales,  // kv_cache_scales.json: one factor for K and V, by tensor-parallel rank and
                   // layer
  kSelfAttn,       // model.layers.N.self_attn.k_scale, .v_scale
  kAttn,           // model.layers.N.self_attn.attn.k_scale, .v_scale
  kProj,           // model.layers.N.self_attn.k_proj.k_scale, .v_proj.v_scale
  kKvScale,        // model.layers.N.self_attn.kv_scale: one factor for K and V
};
inline constexpr std::array kAllScaleLayouts = {
    ScaleLayout::kTurboquant, ScaleLayout::kKvCacheScales, ScaleLayout::kSelfAttn,
    ScaleLayout::kAttn,       ScaleLayout::kProj,          ScaleLayout::kKvScale};

std::string_view Name(ScaleLayout layout);  // as the command line spells it
// CHECKs that it is the name of one.
ScaleLayout ScaleLayoutOf(std::string_view name);
constexpr bool HasOneFactorForKAndV(ScaleLayout layout) {
  return layout == ScaleLayout::kKvCacheScales || layout == ScaleLayout::kKvScale;
}

// x ~ scale * code, code in fp8_e4m3. A part is an equal, consecutive share of the KV heads: all of
// them, those of one tensor-parallel rank, or a single one.
struct LayerScales {
  std::vector<float> k, v;  // [num_parts]; the same where the file had one factor
  bool operator==(const LayerScales&) const = default;
};
struct EngineScales {
  std::string model_type;  // "llama"; empty: the file names none
  int num_parts = 1;
  std::vector<LayerScales> layers;
  bool operator==(const EngineScales&) const = default;
};

// By what the document holds; kInvalidArgument where it is none of them. path: for messages.
Result<ScaleLayout> DetectScaleLayout(const nlohmann::json& document, const std::string& path);

// Not for kTurboquant. Anything but `layout` is refused.
Result<EngineScales> ReadEngineScales(const nlohmann::json& document, ScaleLayout layout,
                                      const std::string& path);

// Not for kTurboquant. One part unless the layout is kKvCacheScales; where it has one factor, K and
// V are the same. Numbers have the fewest digits that give the float back.
std::string ToJson(const EngineScales& scales, ScaleLayout layout);

// The float as a double that prints with the float's digits: 0.023, not 0.02300000004470348.
double ShortestDouble(float number);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_SCALE_LAYOUT_H_
