// Which range a static scale covers, given what was seen: everything, all but a share, or what
// costs least.
#ifndef TURBOQUANT_CALIBRATION_CLIP_RULE_H_
#define TURBOQUANT_CALIBRATION_CLIP_RULE_H_

#include <string>
#include <string_view>

#include "base/error.h"
#include "calibration/statistics.h"

namespace turboquant {

struct ClipRule {
  enum class Kind : uint8_t { kMax, kPercentile, kMse } kind = Kind::kMax;
  double percentile = 100;  // kPercentile: share of magnitudes that fit, in percent
  std::string ToString() const;
};

// "max", "percentile:99.9" (above 50, at most 100) or "mse". kInvalidArgument otherwise.
Result<ClipRule> ParseClipRule(std::string_view text);

// The magnitude at the end of the range: `max` for kMax; the percentile to a bin's width, never
// above `max`; for kMse the bin edge that minimises the squared error of 8-bit codes (step^2 / 12
// for what fits, the distance to the end for what does not). 0 where nothing but zeros was seen.
float ClipRange(const ClipRule& rule, const MagnitudeHistogram& magnitudes, float max);

// Share of magnitudes above `range`, to a bin's width.
double ClippedShare(const MagnitudeHistogram& magnitudes, float range);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_CLIP_RULE_H_
