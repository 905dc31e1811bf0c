#include "kernels/neon/kernels.h"
#include "kernels/neon/vec.h"

namespace turboquant::neon {
namespace {

constexpr int kVector = 4;

// One stage within a vector: `other` has every lane's partner; lanes of `upper` end as partner -
// lane, the others as lane + partner.
TQ_ALWAYS_INLINE float32x4_t Stage(float32x4_t x, float32x4_t other, uint32x4_t upper) {
  return vbslq_f32(upper, vsubq_f32(other, x), vaddq_f32(x, other));
}

// Strides 1 and 2.
TQ_ALWAYS_INLINE float32x4_t WithinVector(float32x4_t x) {
  const uint32x4_t odd = {0, ~0u, 0, ~0u}, high = {0, 0, ~0u, ~0u};
  x = Stage(x, vrev64q_f32(x), odd);
  return Stage(x, vextq_f32(x, x, 2), high);
}

// One stage of a block of n channels with a stride of whole vectors.
TQ_ALWAYS_INLINE void StageOverVectors(float* x, int n, int stride) {
  for (int first = 0; first < n; first += 2 * stride) {
    for (int i = first; i < first + stride; i += kVector) {
      const float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + stride);
      vst1q_f32(x + i, vaddq_f32(a, b));
      vst1q_f32(x + i + stride, vsubq_f32(a, b));
    }
  }
}

// n: channels that are rotated together.
void RotateRow(const float* in, float* out, int head_dim, int n, float norm, bool inverse) {
  const float* signs = kRotationSigns.data();
  for (int c = 0; c < head_dim; c += kVector) {
    float32x4_t x = vld1q_f32(in + c);
    if (!inverse) x = vmulq_f32(x, vld1q_f32(signs + c));
    vst1q_f32(out + c, WithinVector(x));
  }
  for (int first = 0; first < head_dim; first += n) {
    for (int stride = kVector; stride < n; stride *= 2) StageOverVectors(out + first, n, stride);
  }
  for (int c = 0; c < head_dim; c += kVector) {
    float32x4_t x = vmulq_f32(vld1q_f32(out + c), vdupq_n_f32(norm));
    if (inverse) x = vmulq_f32(x, vld1q_f32(signs + c));
    vst1q_f32(out + c, x);
  }
}

}  // namespace

void Rotate(const RotateArgs& args) {
  const int n = args.head_dim & -args.head_dim;
  // Rounded once, from double, as the specification does.
  const auto norm = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(n)));
  for (int row = 0; row < args.num_rows; ++row) {
    RotateRow(args.in + Size(row) * args.in_stride, args.out + Size(row) * args.out_stride,
              args.head_dim, n, norm, args.inverse);
  }
}

}  // namespace turboquant::neon
