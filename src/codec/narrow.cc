#include "codec/narrow.h"

#include <cmath>

#include "codec/scale.h"

namespace turboquant {

int NearestMagnitude(const NarrowFormat& format, float p) {
  const float magnitude = std::fabs(p);
  int index = 0;
  while (index + 1 < format.half && magnitude > format.Threshold(index)) ++index;
  return index;
}

int QuantizeNarrow(const NarrowFormat& format, float x, float inv_scale) {
  const float p = Scaled(x, inv_scale);
  const int index = NearestMagnitude(format, p);
  return p < 0 ? format.half - 1 - index : format.half + index;
}

}  // namespace turboquant
