#include "calibration/clip_rule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace turboquant {
namespace {

constexpr double kCodes = 127;  // of an 8-bit range, each side

float PercentileRange(const MagnitudeHistogram& magnitudes, double percentile) {
  const double wanted = static_cast<double>(magnitudes.total()) * percentile / 100;
  int64_t seen = 0;
  for (int bin = 0; bin < MagnitudeHistogram::kNumBins; ++bin) {
    seen += magnitudes.counts()[static_cast<size_t>(bin)];
    if (static_cast<double>(seen) >= wanted) {
      return static_cast<float>(MagnitudeHistogram::UpperEdge(bin));
    }
  }
  return std::numeric_limits<float>::max();
}

double Middle(int bin) {
  const double lower = bin == 0 ? 0 : MagnitudeHistogram::UpperEdge(bin - 1);
  return (lower + MagnitudeHistogram::UpperEdge(bin)) / 2;
}

double SquaredError(const MagnitudeHistogram& magnitudes, int last_bin) {
  const double range = MagnitudeHistogram::UpperEdge(last_bin), step = range / kCodes;
  double error = 0;
  for (int bin = 0; bin < MagnitudeHistogram::kNumBins; ++bin) {
    const auto count = static_cast<double>(magnitudes.counts()[static_cast<size_t>(bin)]);
    const double beyond = bin <= last_bin ? 0 : Middle(bin) - range;
    error += count * (beyond * beyond + step * step / 12);
  }
  return error;
}

float LeastErrorRange(const MagnitudeHistogram& magnitudes) {
  // Further below the maximum, clipping costs more than any finer step gains.
  constexpr int kSearchedBins = 5 * MagnitudeHistogram::kBinsPerOctave;
  int highest = MagnitudeHistogram::kNumBins - 1;
  while (highest > 0 && magnitudes.counts()[static_cast<size_t>(highest)] == 0) --highest;
  int best = highest;
  double least = SquaredError(magnitudes, highest);
  for (int bin = highest - 1; bin >= std::max(0, highest - kSearchedBins); --bin) {
    const double error = SquaredError(magnitudes, bin);
    if (error < least) {
      least = error;
      best = bin;
    }
  }
  return static_cast<float>(MagnitudeHistogram::UpperEdge(best));
}

}  // namespace

std::string ClipRule::ToString() const {
  switch (kind) {
    case Kind::kMax:
      return "max";
    case Kind::kPercentile:
      return fmt::format("percentile:{}", percentile);
    case Kind::kMse:
      return "mse";
  }
  return "";
}

Result<ClipRule> ParseClipRule(std::string_view text) {
  if (text == "max") return ClipRule{.kind = ClipRule::Kind::kMax};
  if (text == "mse") return ClipRule{.kind = ClipRule::Kind::kMse};
  constexpr std::string_view kPercentile = "percentile:";
  if (text.starts_with(kPercentile)) {
    const std::string_view number = text.substr(kPercentile.size());
    double percentile = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), percentile);
    if (error == std::errc{} && end == number.data() + number.size() && percentile > 50 &&
        percentile <= 100) {
      return ClipRule{.kind = ClipRule::Kind::kPercentile, .percentile = percentile};
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              "clip rule '{}': want max, mse or percentile:P with P above 50 and up to 100", text);
}

float ClipRange(const ClipRule& rule, const MagnitudeHistogram& magnitudes, float max) {
  if (max == 0) return 0;
  switch (rule.kind) {
    case ClipRule::Kind::kMax:
      return max;
    case ClipRule::Kind::kPercentile:
      return std::min(max, PercentileRange(magnitudes, rule.percentile));
    case ClipRule::Kind::kMse:
      return std::min(max, LeastErrorRange(magnitudes));
  }
  return max;
}

double ClippedShare(const MagnitudeHistogram& magnitudes, float range) {
  const int64_t total = magnitudes.total();
  if (total == 0) return 0;
  int64_t above = 0;
  for (int bin = MagnitudeHistogram::BinOf(range) + 1; bin < MagnitudeHistogram::kNumBins; ++bin) {
    above += magnitudes.counts()[static_cast<size_t>(bin)];
  }
  return static_cast<double>(above) / static_cast<double>(total);
}

}  // namespace turboquant
