#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {
namespace {

constexpr int kVector = 8;

// One stage within a vector: `other` has every lane's partner; lanes of `upper` end as partner -
// lane, the others as lane + partner.
template <int upper>
TQ_ALWAYS_INLINE __m256 Stage(__m256 x, __m256 other) {
  return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), upper);
}

// Strides 1, 2 and 4.
TQ_ALWAYS_INLINE __m256 WithinVector(__m256 x) {
  x = Stage<0xAA>(x, _mm256_permute_ps(x, 0xB1));
  x = Stage<0xCC>(x, _mm256_permute_ps(x, 0x4E));
  return Stage<0xF0>(x, _mm256_permute2f128_ps(x, x, 0x01));
}

// One stage of a block of n channels with a stride of whole vectors.
TQ_ALWAYS_INLINE void StageOverVectors(float* x, int n, int stride) {
  for (int first = 0; first < n; first += 2 * stride) {
    for (int i = first; i < first + stride; i += kVector) {
      const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + stride);
      _mm256_storeu_ps(x + i, _mm256_add_ps(a, b));
      _mm256_storeu_ps(x + i + stride, _mm256_sub_ps(a, b));
    }
  }
}

// n: channels that are rotated together.
void RotateRow(const float* in, float* out, int head_dim, int n, float norm, bool inverse) {
  const float* signs = kRotationSigns.data();
  for (int c = 0; c < head_dim; c += kVector) {
    __m256 x = _mm256_loadu_ps(in + c);
    if (!inverse) x = _mm256_mul_ps(x, _mm256_loadu_ps(signs + c));
    _mm256_storeu_ps(out + c, WithinVector(x));
  }
  for (int first = 0; first < head_dim; first += n) {
    for (int stride = kVector; stride < n; stride *= 2) StageOverVectors(out + first, n, stride);
  }
  for (int c = 0; c < head_dim; c += kVector) {
    __m256 x = _mm256_mul_ps(_mm256_loadu_ps(out + c), _mm256_set1_ps(norm));
    if (inverse) x = _mm256_mul_ps(x, _mm256_loadu_ps(signs + c));
    _mm256_storeu_ps(out + c, x);
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

}  // namespace turboquant::avx2
