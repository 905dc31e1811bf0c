#include "codec/scale_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/check.h"
#include "base/half.h"
#include "codec/int8.h"
#include "codec/narrow.h"
#include "codec/scale.h"

namespace turboquant {
namespace {

uint16_t ScaleOf(int16_t bias, int code) {
  return static_cast<uint16_t>(std::clamp(kScaleCodeStep * code + bias, 0, kMaxHalfBits));
}

// Eight partial sums, the order that vector kernels add in.
class LaneSum {
 public:
  void Add(size_t channel, float value) { sums_[channel % 8] += value; }
  float Total() const {
    const auto& s = sums_;
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }

 private:
  std::array<float, 8> sums_{};
};

float FiniteOrZero(float x) { return std::isfinite(x) ? x : 0.0f; }

float IdealScale(KvCacheDtype dtype, std::span<const float> row) {
  if (dtype == KvCacheDtype::kInt8) return FiniteAmax(row) / static_cast<float>(kInt8MaxCode);
  LaneSum squares;
  for (size_t c = 0; c < row.size(); ++c) {
    const float x = FiniteOrZero(row[c]);
    squares.Add(c, x * x);
  }
  const float mean = squares.Total() / static_cast<float>(row.size());
  return std::sqrt(mean) / NarrowFormatOf(dtype).levels_per_rms;
}

float SquaredError(const NarrowFormat& format, std::span<const float> row, float scale) {
  const float inv_scale = InverseScale(scale);
  LaneSum error;
  for (size_t c = 0; c < row.size(); ++c) {
    const float x = FiniteOrZero(row[c]);
    const auto index = static_cast<size_t>(NearestMagnitude(format, Scaled(x, inv_scale)));
    const float difference = std::fabs(x) - scale * static_cast<float>(format.magnitudes[index]);
    error.Add(c, difference * difference);
  }
  return error.Total();
}

int SearchCode(KvCacheDtype dtype, std::span<const float> row, int16_t bias, int nearest) {
  const NarrowFormat format = NarrowFormatOf(dtype);
  const int first = std::max(nearest - kScaleSearchSteps, 0);
  const int last = std::min(nearest + kScaleSearchSteps, 255);
  int best = first;
  float least = 0;
  for (int code = first; code <= last; ++code) {
    const float error = SquaredError(format, row, HalfToFloat(ScaleOf(bias, code)));
    if (code > first && !(error < least)) continue;
    best = code;
    least = error;
  }
  return best;
}

}  // namespace

void FitScales(const FitScalesArgs& args) {
  CHECK(args.dtype == KvCacheDtype::kInt8 || IsNarrow(args.dtype));
  CHECK_LE(args.num_tokens, kMaxBlockTokens);
  const auto head_dim = static_cast<size_t>(args.head_dim);
  const auto row = [&](int token) {
    return std::span(args.x + static_cast<size_t>(token) * head_dim, head_dim);
  };
  std::array<float, kMaxBlockTokens> ideal;
  std::array<int, kMaxBlockTokens> bits;
  int largest = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const auto i = static_cast<size_t>(t);
    ideal[i] = IdealScale(args.dtype, row(t));
    bits[i] = FloatToHalf(std::min(ideal[i], kMaxHalf));
    largest = std::max(largest, bits[i]);
  }
  constexpr int kHalfStep = kScaleCodeStep / 2;
  *args.bias = static_cast<int16_t>(kScaleCodeStep *
                                    ((largest + kHalfStep) / kScaleCodeStep - kLargestScaleCode));
  for (int t = 0; t < args.num_tokens; ++t) {
    const auto i = static_cast<size_t>(t);
    const bool narrow = IsNarrow(args.dtype);
    const int above = std::max(bits[i] - *args.bias, 0);
    int code = std::min((above + (narrow ? kHalfStep : kScaleCodeStep - 1)) / kScaleCodeStep, 255);
    if (narrow && ideal[i] > 0) code = SearchCode(args.dtype, row(t), *args.bias, code);
    args.codes[t] = static_cast<uint8_t>(code);
  }
  ExpandScales({args.codes, *args.bias, args.num_tokens, args.scales});
}

void ExpandScales(const ExpandScalesArgs& args) {
  for (int t = 0; t < args.num_tokens; ++t) args.scales[t] = ScaleOf(args.bias, args.codes[t]);
}

}  // namespace turboquant
