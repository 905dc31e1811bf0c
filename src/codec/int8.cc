#include "codec/int8.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/scale.h"

namespace turboquant {

int8_t QuantizeInt8(float x, float inv_scale) {
  constexpr float kMax = kInt8MaxCode;
  return static_cast<int8_t>(std::clamp(std::rint(Scaled(x, inv_scale)), -kMax, kMax));
}

float DequantizeInt8(int8_t code, float scale) { return scale * static_cast<float>(code); }

uint16_t QuantizeInt8Row(std::span<const float> x, std::span<int8_t> codes) {
  CHECK_EQ(x.size(), codes.size());
  const uint16_t scale = SymmetricScale(FiniteAmax(x), kInt8MaxCode);
  const float inv_scale = InverseScale(HalfToFloat(scale));
  for (size_t i = 0; i < x.size(); ++i) codes[i] = QuantizeInt8(x[i], inv_scale);
  return scale;
}

void DequantizeInt8Row(std::span<const int8_t> codes, uint16_t scale, std::span<float> x) {
  CHECK_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = DequantizeInt8(codes[i], HalfToFloat(scale));
}

}  // namespace turboquant
