#include <cmath>

#include "base/half.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {

void ToHalf(const ConvertArgs& args) {
  for (size_t i = 0; i < args.n; ++i) {
    const float x = args.in[i];
    const float clamped = std::fmin(std::fmax(x, -kMaxHalf), kMaxHalf);
    args.out[i] = std::isnan(x) ? uint16_t{0} : FloatToHalf(clamped);
  }
}

}  // namespace turboquant::scalar
