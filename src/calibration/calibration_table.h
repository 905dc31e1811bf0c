// What calibration leaves: ranges of K and V per layer and head for one model, as a file that is
// refused wherever it does not fit. Static scales are made of it for a format and a granularity.
//
// The file (docs/formats/calibration.md) is versioned JSON. Loading is fail-closed: another model,
// a missing or extra layer or head, a range that is no positive finite number, or content that does
// not match its digest is an error that names the place. A table that was converted from another
// engine's file (calibration/scale_conversion.h) knows less and is refused where that would matter.
#ifndef TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_
#define TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "calibration/clip_rule.h"
#include "calibration/statistics.h"
#include "codec/kv_cache_spec.h"
#include "model/fingerprint.h"

namespace turboquant {

// All ranges are magnitudes, > 0 and finite. double, so that 448 times a float scale is exact and
// the scale comes back as it was.
struct CalibratedSide {
  std::vector<double> ranges;          // [num_kv_heads]
  std::vector<double> rotated_ranges;  // [num_kv_heads], of rotated values (codec/rotation.h)
  std::vector<double> channel_ranges;  // [num_kv_heads][head_dim], never clipped
  bool operator==(const CalibratedSide&) const = default;
};
struct CalibratedLayer {
  CalibratedSide k, v;
  // [num_kv_heads][head_dim], > 0: sqrt(rms of the queries / rms of the keys less their block's
  // mean) of each channel, over its geometric mean in the head. Keys times this and queries divided
  // by it have the same spread in every channel, where the error of a dot product is least.
  std::vector<double> k_balance;
  bool operator==(const CalibratedLayer&) const = default;
};

// The clip rule of a table whose scales came from another engine's file. Such a table, and no
// other, has no rotated_ranges, no channel_ranges and no k_balance.
inline constexpr std::string_view kImported = "imported";

struct CalibrationTable {
  ModelFingerprint model;
  std::string clip_rule;  // as ParseClipRule takes it, or kImported
  int64_t num_tokens = 0;
  std::vector<std::string> texts;  // what it was made from, for people
  std::vector<CalibratedLayer> layers;

  // kInvalidArgument unless the table was made for this very model; says what differs.
  [[nodiscard]] Status CheckModel(const ModelFingerprint& other) const;
  // kInvalidArgument where `spec` wants what an imported table cannot give; says what works
  // instead.
  [[nodiscard]] Status CheckSpec(const KvCacheSpec& spec) const;
  bool operator==(const CalibrationTable&) const = default;
};

// Where nothing but zeros was seen a range is 1. clip_rule, num_tokens and layers are filled in.
CalibrationTable MakeCalibrationTable(const KvStatistics& statistics, const ClipRule& rule);

std::string ToJson(const CalibrationTable& table);
// path: for messages.
Result<CalibrationTable> ParseCalibrationTable(const std::string& json, const std::string& path);

// Scales of a layer for the static sides of `spec`: range / largest code (127, 7, 448 or 57344).
// Sides that are not static stay empty, and k_balance where K is not balanced. The table has passed
// CheckSpec.
KvStaticScales StaticScales(const CalibratedLayer& layer, const KvCacheSpec& spec);

// What a reader of a calibration should know: clipped shares, heads of which nothing was seen,
// channels far above the rest, heads that are mostly bias. One line each.
std::vector<std::string> CalibrationWarnings(const KvStatistics& statistics,
                                             const CalibrationTable& table);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_CALIBRATION_TABLE_H_
