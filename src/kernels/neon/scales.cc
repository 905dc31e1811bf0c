// Scales of one byte: fitting and expanding, the bits of codec/scale_fit.h.
#include "codec/narrow.h"
#include "kernels/neon/kernels.h"
#include "kernels/neon/narrow_levels.h"

namespace turboquant::neon {
namespace {

constexpr float kMaxHalf = 65504.0f;

float32x4_t FiniteOrZero(float32x4_t x) {
  return Keep(x, vcaltq_f32(x, vdupq_n_f32(__builtin_inff())));
}

float Amax(const float* row, int n) {
  float32x4_t max = Zero();
  for (int c = 0; c < n; c += 4) max = vmaxq_f32(max, vabsq_f32(FiniteOrZero(vld1q_f32(row + c))));
  return vmaxvq_f32(max);
}

float32x4_t AddSquare(float32x4_t sum, float32x4_t x) { return vaddq_f32(sum, vmulq_f32(x, x)); }

float Rms(const float* row, int n) {
  Eight sums = {Zero(), Zero()};
  for (int c = 0; c < n; c += 8) {
    const Eight x = LoadEight(row + c);
    sums = {AddSquare(sums.low, FiniteOrZero(x.low)), AddSquare(sums.high, FiniteOrZero(x.high))};
  }
  const float mean = OrderedSum(sums) / static_cast<float>(n);
  return vgetq_lane_f32(vsqrtq_f32(vdupq_n_f32(mean)), 0);
}

int Clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

uint16_t ScaleOf(int16_t bias, int code) {
  return static_cast<uint16_t>(Clamp(kScaleCodeStep * code + bias, 0, kMaxHalfBits));
}

// What the nearest level of each of four values misses.
template <KvCacheDtype kDtype>
TQ_ALWAYS_INLINE float32x4_t Missed(float32x4_t x, float32x4_t scale, float32x4_t inverse) {
  const float32x4_t absolute = vabsq_f32(FiniteOrZero(x));
  const float32x4_t magnitude = NarrowLevels<kDtype>::Magnitude(vmulq_f32(absolute, inverse));
  return vsubq_f32(absolute, vmulq_f32(scale, magnitude));
}

template <KvCacheDtype kDtype>
float SquaredError(const float* row, int n, float scale) {
  const float32x4_t factor = vdupq_n_f32(scale), inverse = vdupq_n_f32(Inverse(scale));
  Eight error = {Zero(), Zero()};
  for (int c = 0; c < n; c += 8) {
    const Eight x = LoadEight(row + c);
    error = {AddSquare(error.low, Missed<kDtype>(x.low, factor, inverse)),
             AddSquare(error.high, Missed<kDtype>(x.high, factor, inverse))};
  }
  return OrderedSum(error);
}

template <KvCacheDtype kDtype>
int SearchCode(const float* row, int n, int16_t bias, int nearest) {
  const int first = Clamp(nearest - kScaleSearchSteps, 0, 255);
  const int last = Clamp(nearest + kScaleSearchSteps, 0, 255);
  int best = first;
  float least = 0;
  for (int code = first; code <= last; ++code) {
    const float error = SquaredError<kDtype>(row, n, FromF16(ScaleOf(bias, code)));
    if (code > first && !(error < least)) continue;
    best = code;
    least = error;
  }
  return best;
}

// search: of a narrow format; null: the scale that the largest value just needs.
using SearchFn = int (*)(const float* row, int n, int16_t bias, int nearest);
void Fit(const FitScalesArgs& args, float unit, SearchFn search) {
  float ideal[kMaxBlockTokens];
  int bits[kMaxBlockTokens];
  int largest = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* row = args.x + Size(t) * Size(args.head_dim);
    ideal[t] = (search == nullptr ? Amax(row, args.head_dim) : Rms(row, args.head_dim)) / unit;
    bits[t] = ToF16(ideal[t] < kMaxHalf ? ideal[t] : kMaxHalf);
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
      code = search(args.x + Size(t) * Size(args.head_dim), args.head_dim, *args.bias, code);
    }
    args.codes[t] = static_cast<uint8_t>(code);
  }
  ExpandScales({args.codes, *args.bias, args.num_tokens, args.scales});
}

template <KvCacheDtype kDtype>
void FitNarrow(const FitScalesArgs& args) {
  constexpr float kUnit = NarrowFormatOf(kDtype).levels_per_rms;
  Fit(args, kUnit, SearchCode<kDtype>);
}

}  // namespace

void FitScales(const FitScalesArgs& args) {
  if (args.dtype == KvCacheDtype::kInt8) return Fit(args, 127.0f, nullptr);
  if (args.dtype == KvCacheDtype::kInt6) return FitNarrow<KvCacheDtype::kInt6>(args);
  if (args.dtype == KvCacheDtype::kInt5) return FitNarrow<KvCacheDtype::kInt5>(args);
  if (args.dtype == KvCacheDtype::kInt4) return FitNarrow<KvCacheDtype::kInt4>(args);
  if (args.dtype == KvCacheDtype::kInt3) return FitNarrow<KvCacheDtype::kInt3>(args);
  FitNarrow<KvCacheDtype::kInt2>(args);
}

void ExpandScales(const ExpandScalesArgs& args) {
  const int16x8_t bias = vdupq_n_s16(args.bias), largest = vdupq_n_s16(kMaxHalfBits);
  for (int t = 0; t < args.num_tokens; t += 8) {
    const int16x8_t steps = vreinterpretq_s16_u16(vshll_n_u8(vld1_u8(args.codes + t), 6));
    const int16x8_t bits = vaddq_s16(steps, bias);
    const int16x8_t clamped = vminq_s16(vmaxq_s16(bits, vdupq_n_s16(0)), largest);
    vst1q_u16(args.scales + t, vreinterpretq_u16_s16(clamped));
  }
}

}  // namespace turboquant::neon
