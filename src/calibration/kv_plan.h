// A plan: the cache format of every layer of one model, as `turboquant tune` writes it and
// --kv-plan reads it. The file (docs/formats/kv-plan.md) is versioned JSON; like a calibration
// table it is refused wherever it does not fit: another model, a missing or extra layer, a format
// that is none, or layers that do not match their digest.
#ifndef TURBOQUANT_CALIBRATION_KV_PLAN_H_
#define TURBOQUANT_CALIBRATION_KV_PLAN_H_

#include <string>
#include <vector>

#include "base/error.h"
#include "model/fingerprint.h"

namespace turboquant {

struct KvPlan {
  ModelFingerprint model;
  std::vector<std::string> layers;  // formats, as --kv-cache-dtype takes them: "int6/int4"
  double bits_per_value = 0;        // of the whole
  std::string made_by;              // what it was tuned for, for people

  // kInvalidArgument unless the plan was made for this very model; says what differs.
  [[nodiscard]] Status CheckModel(const ModelFingerprint& other) const;
  // The same as --kv-cache-dtype-layers: "0-3:int6/int4,4-29:int4".
  std::string ToOverrides() const;
  bool operator==(const KvPlan&) const = default;
};

std::string ToJson(const KvPlan& plan);
// path: for messages.
Result<KvPlan> ParseKvPlan(const std::string& json, const std::string& path);

// "0-3:int6/int4,4-29:int4" of one format per layer.
std::string LayerOverrides(const std::vector<std::string>& layers);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_KV_PLAN_H_
