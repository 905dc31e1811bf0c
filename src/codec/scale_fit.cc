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

constexpr uint32_t kCodeZeroBits = 113u << 23;  // of SmallScale(0)
constexpr int kMantissaShift = 19;              // of a float's bits to a code

uint16_t ScaleOf(uint16_t base, uint8_t code) {
  return FloatToHalf(HalfToFloat(base) * SmallScale(code));
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

// round_up: the smallest code that is not below, else the nearest (ties up).
int CodeOfRatio(float ratio, bool round_up) {
  const uint32_t bits = std::bit_cast<uint32_t>(std::min(ratio, kMaxSmallScale));
  if (bits <= kCodeZeroBits) return 0;
  const uint32_t half = round_up ? (1u << kMantissaShift) - 1 : 1u << (kMantissaShift - 1);
  return static_cast<int>(std::min((bits - kCodeZeroBits + half) >> kMantissaShift, 255u));
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

uint8_t SearchCode(KvCacheDtype dtype, std::span<const float> row, uint16_t base, int nearest) {
  const NarrowFormat format = NarrowFormatOf(dtype);
  const int first = std::max(nearest - kScaleSearchSteps, 0);
  const int last = std::min(nearest + kScaleSearchSteps, 255);
  int best = first;
  float least = 0;
  for (int code = first; code <= last; ++code) {
    const uint16_t scale = ScaleOf(base, static_cast<uint8_t>(code));
    const float error = SquaredError(format, row, HalfToFloat(scale));
    if (code > first && !(error < least)) continue;
    best = code;
    least = error;
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

void FitScales(const FitScalesArgs& args) {
  CHECK(args.dtype == KvCacheDtype::kInt8 || IsNarrow(args.dtype));
  const auto head_dim = static_cast<size_t>(args.head_dim);
  const auto row = [&](int token) {
    return std::span(args.x + static_cast<size_t>(token) * head_dim, head_dim);
  };
  float largest = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    largest = std::max(largest, IdealScale(args.dtype, row(t)));
  }
  *args.base = FloatToHalf(std::min(largest, kMaxScaleBase));
  const float base = HalfToFloat(*args.base);
  for (int t = 0; t < args.num_tokens; ++t) {
    const float ideal = IdealScale(args.dtype, row(t));
    const float ratio = base > 0 ? ideal / base : 0.0f;
    const bool narrow = IsNarrow(args.dtype);
    const int code = CodeOfRatio(ratio, !narrow);
    args.codes[t] = narrow && ideal > 0 ? SearchCode(args.dtype, row(t), *args.base, code)
                                        : static_cast<uint8_t>(code);
  }
  ExpandScales({args.codes, *args.base, args.num_tokens, args.scales});
}

void ExpandScales(const ExpandScalesArgs& args) {
  for (int t = 0; t < args.num_tokens; ++t) args.scales[t] = ScaleOf(args.base, args.codes[t]);
}

}  // namespace turboquant
