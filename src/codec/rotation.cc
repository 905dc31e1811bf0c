#include "codec/rotation.h"

#include <cmath>

namespace turboquant {
namespace {

void Butterflies(float* x, int n) {
  for (int stride = 1; stride < n; stride *= 2) {
    for (int first = 0; first < n; first += 2 * stride) {
      for (int i = first; i < first + stride; ++i) {
        const float a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

}  // namespace

void Rotate(const RotateArgs& args) {
  const int n = RotationSize(args.head_dim);
  const auto norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  for (int row = 0; row < args.num_rows; ++row) {
    const float* in = args.in + static_cast<size_t>(row) * args.in_stride;
    float* out = args.out + static_cast<size_t>(row) * args.out_stride;
    for (int c = 0; c < args.head_dim; ++c) {
      out[c] = args.inverse ? in[c] : in[c] * kRotationSigns[static_cast<size_t>(c)];
    }
    for (int first = 0; first < args.head_dim; first += n) Butterflies(out + first, n);
    for (int c = 0; c < args.head_dim; ++c) {
      out[c] *= norm;
      if (args.inverse) out[c] *= kRotationSigns[static_cast<size_t>(c)];
    }
  }
}

}  // namespace turboquant
