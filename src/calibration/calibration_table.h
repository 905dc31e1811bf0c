// What calibration leaves: ranges of K and V per layer and head for one model, as a file that is
// refused wherever it does not fit. Static scales are made of it for a format and a granularity.
//
// The file (docs/formats/calibration.md) is versioned JSON. Loading is fail-closed: another model,
// a missing or extra layer or head, a range that is no positive finite number, or content that does
// not match its digest is an error that names the place.
#ifndef TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_
#define TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "calibration/clip_rule.h"
#include "calibration/statistics.h"
#include "codec/kv_cache_spec.h"
#include "model/fingerprint.h"

namespace turboquant {

// All ranges are magnitudes, > 0 and finite.
struct CalibratedSide {
  std::vector<float> ranges;          // [num_kv_heads]
  std::vector<float> rotated_ranges;  // [num_kv_heads], of rotated values (codec/rotation.h)
  std::vector<float> channel_ranges;  // [num_kv_heads][head_dim], never clipped
  bool operator==(const CalibratedSide&) const = default;
};
struct CalibratedLayer {
  CalibratedSide k, v;
  bool operator==(const CalibratedLayer&) const = default;
};

struct CalibrationTable {
  ModelFingerprint model;
  std::string clip_rule;  // as ParseClipRule takes it
  int64_t num_tokens = 0;
  std::vector<std::string> texts;  // what it was made from, for people
  std::vector<CalibratedLayer> layers;

  // kInvalidArgument unless the table was made for this very model; says what differs.
  [[nodiscard]] Status CheckModel(const ModelFingerprint& other) const;
  bool operator==(const CalibrationTable&) const = default;
};

// Where nothing but zeros was seen a range is 1. clip_rule, num_tokens and layers are filled in.
CalibrationTable MakeCalibrationTable(const KvStatistics& statistics, const ClipRule& rule);

std::string ToJson(const CalibrationTable& table);
// path: for messages.
Result<CalibrationTable> ParseCalibrationTable(const std::string& json, const std::string& path);

// Scales of a layer for the static sides of `spec`: range / largest code (127, 7, 448 or 57344).
// Sides that are not static stay empty.
KvStaticScales StaticScales(const CalibratedLayer& layer, const KvCacheSpec& spec);

// What a reader of a calibration should know: clipped shares, heads of which nothing was seen,
// channels far above the rest, heads that are mostly bias. One line each.
std::vector<std::string> CalibrationWarnings(const KvStatistics& statistics,
                                             const CalibrationTable& table);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_
