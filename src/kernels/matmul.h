// Products of quantized weights with activations: out[r][n] = sum_k w[n][k] * x[r][k]. Weights stay
// as the GGUF file has them; activations are quantized to 8 bits, 32 at a time. Written for many
// rows as well as for one, and a row's result depends on that row only, bit for bit.
//
// Blocks of 32 weights, little endian (GGUF):
//   q4_0  f16 scale, 16 bytes: weight i in the low nibble of byte i, 16 + i in the high one;
//         w = scale * (code - 8)
//   q4_1  f16 scale, f16 min, 16 bytes as q4_0                       w = scale * code + min
//   q8_0  f16 scale, 32 bytes s8                                     w = scale * code
//
// An activation row of n values (n a multiple of 32), QuantizedRowBytes(n) bytes:
//   s8 [n] codes, f32 [n / 32] scales, f32 [n / 32] sums
// of each block, amax over its 32 values, every operation rounded to f32:
//   code = rint(x * (amax > 0 ? 127 / amax : 0))    scale = f16(amax / 127)    sum = scale *
//   sum(codes)
// f16() as base/half.h; scales as ggml's q8_0 and q8_1 have them, sums unrounded.
//
// The product, blocks in ascending order, each an exact integer and one or two fused multiply-adds:
//   acc = fma(sum_k code_w * code_x, scale_w * scale_x, acc)
//   acc = fma(min_w, sum_x, acc)                         q4_1; q4_0: min_w = -8 * scale_w
// with codes of q4_0 taken as 0 .. 15. Values that are not finite give unspecified results in their
// row.
#ifndef TURBOQUANT_KERNELS_MATMUL_H_
#define TURBOQUANT_KERNELS_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu_features.h"

namespace turboquant {

inline constexpr int kWeightBlock = 32;

enum class WeightType : uint8_t { kQ4_0, kQ4_1, kQ8_0 };
constexpr size_t WeightBlockBytes(WeightType type) {
  return type == WeightType::kQ4_0 ? 18 : type == WeightType::kQ4_1 ? 20 : 34;
}
constexpr size_t QuantizedRowBytes(int num_columns) {
  return static_cast<size_t>(num_columns) / 4 * 5;
}

// x: [num_columns]; out: [QuantizedRowBytes(num_columns)], 4-byte aligned.
using QuantizeRowFn = void (*)(const float* x, int num_columns, uint8_t* out);

struct MatmulArgs {
  WeightType type;
  const uint8_t* weights;  // rows of num_columns weights, weights_stride bytes apart
  size_t weights_stride;
  int num_columns;  // a multiple of kWeightBlock
  // Rows of weights = columns of the output that are computed; multiples of kOutputsPerUnit.
  int first_output, last_output;
  const uint8_t* x;  // quantized rows, x_stride bytes apart
  size_t x_stride;
  int num_rows;
  float* out;         // [num_rows][all outputs]
  size_t out_stride;  // floats
};
inline constexpr int kOutputsPerUnit = 16;
using MatmulFn = void (*)(const MatmulArgs& args);

struct MatmulKernels {
  QuantizeRowFn quantize = nullptr;
  MatmulFn matmul = nullptr;
};
// The plain code that the others equal bit for bit.
MatmulKernels ScalarMatmul();
// The fastest for this CPU, or none where another library is known or thought to be faster
// (docs/decisions/012-matrix-products.md).
MatmulKernels SelectMatmul(const CpuFeatures& cpu);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_MATMUL_H_
