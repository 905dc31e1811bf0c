// The rotation that spreads a vector's outliers over all its channels before it is quantized: a
// Walsh-Hadamard transform of blocks of channels with fixed signs in front of it. Orthonormal: dot
// products of two rotated vectors are those of the vectors.
//
//   n = largest power of two that divides head_dim (64 for 192, 16 for 80); for every n channels:
//   forward:  y = (H (sign * x)) / sqrt(n)         inverse:  x = sign * ((H y) / sqrt(n))
//
// H is Sylvester's matrix, applied as butterflies (a, b) -> (a + b, a - b) over strides 1, 2, 4 ..
// n/2, each operation rounded to f32; the last multiplication is by the f32 number nearest to
// 1/sqrt(n). Every kernel gives these bits.
//
// Why: docs/decisions/004-rotation.md. Without signs a constant vector would become an outlier.
#ifndef TURBOQUANT_CODEC_ROTATION_H_
#define TURBOQUANT_CODEC_ROTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace turboquant {

inline constexpr int kMaxRotationChannels = 512;

// +1 or -1 of channel c of a head: the top bit of the (c+1)-th number of SplitMix64 seeded with 0.
extern const std::array<float, kMaxRotationChannels> kRotationSigns;

// Channels that are rotated together. head_dim: a positive multiple of 16.
constexpr int RotationSize(int head_dim) { return head_dim & -head_dim; }

struct RotateArgs {
  const float* in;  // num_rows rows of [head_dim], in_stride floats apart
  size_t in_stride;
  float* out;  // the same shape; may be `in` with the same stride
  size_t out_stride;
  int num_rows, head_dim;
  bool inverse;
};
// The specification.
void Rotate(const RotateArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_ROTATION_H_
