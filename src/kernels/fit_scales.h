// Fitting of byte scales for the vector kernels: the bits of codec/scale_fit.h, what does not
// depend on the instruction set. As in kernels/encode_tiles.h everything is a member of a template.
// Isa provides
//   float Amax(row, n), float Rms(row, n)                of the finite values
//   float SquaredError<kDtype>(row, n, scale)            of a narrow format
//   uint16_t ToHalf(float), float FromHalf(uint16_t)
#ifndef TURBOQUANT_KERNELS_FIT_SCALES_H_
#define TURBOQUANT_KERNELS_FIT_SCALES_H_

#include <cstddef>
#include <cstdint>

#include "codec/narrow.h"
#include "codec/scale_fit.h"
#include "codec/tile.h"

namespace turboquant {

template <typename Isa>
class ScaleFitter {
 public:
  // All of args but `scales`: expanding is left to the caller.
  static void Fit(const FitScalesArgs& args) {
    if (args.dtype == KvCacheDtype::kInt8) return Fit(args, 127.0f, nullptr);
    if (args.dtype == KvCacheDtype::kInt6) return FitNarrow<KvCacheDtype::kInt6>(args);
    if (args.dtype == KvCacheDtype::kInt5) return FitNarrow<KvCacheDtype::kInt5>(args);
    if (args.dtype == KvCacheDtype::kInt4) return FitNarrow<KvCacheDtype::kInt4>(args);
    if (args.dtype == KvCacheDtype::kInt3) return FitNarrow<KvCacheDtype::kInt3>(args);
    FitNarrow<KvCacheDtype::kInt2>(args);
  }

 private:
  static constexpr float kMaxHalf = 65504.0f;

  static int Clamp(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
  }

  template <KvCacheDtype kDtype>
  static int SearchCode(const float* row, int n, int16_t bias, int nearest) {
    const int first = Clamp(nearest - kScaleSearchSteps, 0, 255);
    const int last = Clamp(nearest + kScaleSearchSteps, 0, 255);
    int best = first;
    float least = 0;
    for (int code = first; code <= last; ++code) {
      const auto bits = static_cast<uint16_t>(Clamp(kScaleCodeStep * code + bias, 0, kMaxHalfBits));
      const float error = Isa::template SquaredError<kDtype>(row, n, Isa::FromHalf(bits));
      if (code > first && !(error < least)) continue;
      best = code;
      least = error;
    }
    return best;
  }

  // search: of a narrow format; null: the scale that the largest value just needs.
  using SearchFn = int (*)(const float* row, int n, int16_t bias, int nearest);
  static void Fit(const FitScalesArgs& args, float unit, SearchFn search) {
    const auto row_of = [&](int token) {
      return args.x + static_cast<size_t>(token) * static_cast<size_t>(args.head_dim);
    };
    float ideal[kMaxBlockTokens];
    int bits[kMaxBlockTokens];
    int largest = 0;
    for (int t = 0; t < args.num_tokens; ++t) {
      const float size = search == nullptr ? Isa::Amax(row_of(t), args.head_dim)
                                           : Isa::Rms(row_of(t), args.head_dim);
      ideal[t] = size / unit;
      bits[t] = Isa::ToHalf(ideal[t] < kMaxHalf ? ideal[t] : kMaxHalf);
      largest = bits[t] > largest ? bits[t] : largest;
    }
    constexpr int kHalfStep = kScaleCodeStep / 2;
    const int bias = kScaleCodeStep * ((largest + kHalfStep) / kScaleCodeStep - kLargestScaleCode);
    *args.bias = static_cast<int16_t>(bias);
    for (int t = 0; t < args.num_tokens; ++t) {
      const int above = Clamp(bits[t] - bias, 0, kMaxHalfBits - bias);
      const int round = search == nullptr ? kScaleCodeStep - 1 : kHalfStep;
      int code = Clamp((above + round) / kScaleCodeStep, 0, 255);
      if (search != nullptr && ideal[t] > 0) {
        code = search(row_of(t), args.head_dim, *args.bias, code);
      }
      args.codes[t] = static_cast<uint8_t>(code);
    }
  }

  template <KvCacheDtype kDtype>
  static void FitNarrow(const FitScalesArgs& args) {
    constexpr float kUnit = NarrowFormatOf(kDtype).levels_per_rms;
    Fit(args, kUnit, SearchCode<kDtype>);
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_FIT_SCALES_H_
