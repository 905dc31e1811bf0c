#include "codec/int4.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/scale.h"

namespace turboquant {

int8_t QuantizeInt4(float x, float inv_scale) {
  constexpr float kMax = kInt4MaxCode;
  return static_cast<int8_t>(std::clamp(std::rint(Scaled(x, inv_scale)), -kMax, kMax));
}

float DequantizeInt4(int8_t code, float scale) { return scale * static_cast<float>(code); }

uint16_t QuantizeInt4Row(std::span<const float> x, std::span<int8_t> codes) {
  CHECK_EQ(x.size(), codes.size());
  const uint16_t scale = SymmetricScale(FiniteAmax(x), kInt4MaxCode);
  const float inv_scale = InverseScale(HalfToFloat(scale));
  for (size_t i = 0; i < x.size(); ++i) codes[i] = QuantizeInt4(x[i], inv_scale);
  return scale;
}

void DequantizeInt4Row(std::span<const int8_t> codes, uint16_t scale, std::span<float> x) {
  CHECK_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = DequantizeInt4(codes[i], HalfToFloat(scale));
}

uint8_t QuantizeInt4Asym(float x, float inv_scale, float zero_point) {
  const float shifted = Scaled(x, inv_scale) + zero_point;
  return static_cast<uint8_t>(
      std::clamp(std::rint(shifted), 0.0f, static_cast<float>(kInt4AsymMaxCode)));
}

float DequantizeInt4Asym(uint8_t code, float scale, float zero_point) {
  return scale * (static_cast<float>(code) - zero_point);
}

AsymScale FitInt4Asym(std::span<const float> x) {
  float min = 0.0f, max = 0.0f;
  bool any = false;
  for (float value : x) {
    if (!std::isfinite(value)) continue;
    min = any ? std::min(min, value) : value;
    max = any ? std::max(max, value) : value;
    any = true;
  }
  const float range = max - min;
  const float ideal = range > 0.0f ? range / static_cast<float>(kInt4AsymMaxCode) : std::fabs(min);
  AsymScale fit{.scale = FloatToHalf(std::min(ideal, kMaxHalf)), .zero_point = 0};
  const float scale = HalfToFloat(fit.scale);
  if (scale > 0.0f) {
    fit.zero_point = FloatToHalf(std::clamp((0.0f - min) / scale, -kMaxHalf, kMaxHalf));
  }
  return fit;
}

AsymScale QuantizeInt4AsymRow(std::span<const float> x, std::span<uint8_t> codes) {
  CHECK_EQ(x.size(), codes.size());
  const AsymScale fit = FitInt4Asym(x);
  const float inv_scale = InverseScale(HalfToFloat(fit.scale));
  const float zero_point = HalfToFloat(fit.zero_point);
  for (size_t i = 0; i < x.size(); ++i) codes[i] = QuantizeInt4Asym(x[i], inv_scale, zero_point);
  return fit;
}

void DequantizeInt4AsymRow(std::span<const uint8_t> codes, const AsymScale& scale,
                           std::span<float> x) {
  CHECK_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = DequantizeInt4Asym(codes[i], HalfToFloat(scale.scale), HalfToFloat(scale.zero_point));
  }
}

}  // namespace turboquant
