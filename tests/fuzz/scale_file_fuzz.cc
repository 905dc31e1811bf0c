// Any bytes as a file of scales, ours or another engine's. Refused: with one line that begins with
// the name. Accepted: what is written of it reads back the same.
#include <string>

#include "base/check.h"
#include "calibration/calibration_table.h"
#include "calibration/scale_conversion.h"
#include "calibration/scale_layout.h"
#include "base/json_text.h"

namespace turboquant {
namespace {

void CheckError(const Error& error) {
  CHECK(error.message.starts_with("fuzz: "));
  CHECK_EQ(error.message.find('\n'), std::string::npos);
  CHECK_LT(error.message.size(), 1000u);
}

void CheckTable(const CalibrationTable& table) {
  const auto again = ParseCalibrationTable(ToJson(table), "fuzz");
  CHECK(again);
  CHECK(*again == table);
}

void CheckScales(const EngineScales& scales, ScaleLayout layout) {
  const auto again =
      ReadEngineScales(nlohmann::json::parse(ToJson(scales, layout)), layout, "fuzz");
  CHECK(again);
  CHECK(*again == scales);
  LossNotes notes;
  const ModelFingerprint model = {.architecture = scales.model_type,
                                  .num_layers = static_cast<int>(scales.layers.size()),
                                  .num_kv_heads = scales.num_parts,
                                  .head_dim = 16,
                                  .tensor_hash = "",
                                  .tokenizer_hash = ""};
  const auto table = TableOfScales(scales, model, "fuzz", &notes);
  CHECK(table);
  CHECK(notes.empty());
  CheckTable(*table);
  CHECK(ScalesOfTable(*table) == scales);
}

}  // namespace
}  // namespace turboquant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto table = ParseCalibrationTable(text, "fuzz"); table) {
    CheckTable(*table);
  } else {
    CheckError(table.error());
  }
  if (!CheckJson(text, "fuzz")) return 0;
  const auto document = nlohmann::json::parse(text);
  const auto detected = DetectScaleLayout(document, "fuzz");
  if (!detected) CheckError(detected.error());
  for (const ScaleLayout layout : kAllScaleLayouts) {
    if (layout == ScaleLayout::kTurboquant) continue;
    const auto scales = ReadEngineScales(document, layout, "fuzz");
    if (!scales) {
      CheckError(scales.error());
    } else {
      CheckScales(*scales, layout);
    }
  }
  return 0;
}
