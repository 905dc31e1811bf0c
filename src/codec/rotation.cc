#include "codec/rotation.h"

#include <cmath>

namespace turboquant {

constinit const std::array<float, kMaxRotationChannels> kRotationSigns = [] {
  std::array<float, kMaxRotationChannels> signs{};
  uint64_t state = 0;
  for (float& sign : signs) {
    state += 0x9E3779B97F4A7C15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    sign = ((x ^ (x >> 31)) >> 63) != 0 ? -1.0f : 1.0f;
  }
  return signs;
}();

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
