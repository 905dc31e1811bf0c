// Products of quantized weights with activations: out[r][n] = sum_k w[n][k] * x[r][k]. Weights stay
// as the GGUF file has them; activations are quantized to 8 bits, 32 at a time. Written for many
// rows as well as for one, and a row's result depends on that row only, bit for bit.
//
// Blocks of weights, little endian (GGUF). "nibbles": weight i of 32 in the low half of byte i, 16
// + i in the high one, i < 16.
//   q4_0    f16 scale, nibbles                                  w = scale * (code - 8)
//   q4_1    f16 scale, f16 min, nibbles                         w = scale * code + min
//   q5_0    f16 scale, u32 fifth bits, nibbles                  w = scale * (code - 16)
//   q5_1    f16 scale, f16 min, u32 fifth bits, nibbles         w = scale * code + min
//   q8_0    f16 scale, s8 [32]                                  w = scale * code
// and of 256, eight sub-blocks j of 32:
//   q4_k    f16 d, f16 dmin, u8 [12] six-bit factors, u8 [128]: weight l of sub-blocks 2i and 2i +
//   1
//           in the halves of byte 32i + l
//                                                               w = d * s[j] * code - dmin * m[j]
//   q5_k    f16 d, f16 dmin, u8 [12], u8 [32] fifth bits (bit j of byte l), u8 [128] as q4_k
//
// An activation row of n values (n a multiple of 32), QuantizedRowBytes(n) bytes:
//   s8 [n] codes, f32 [n / 32] scales, f32 [n / 32] sums
// of each block, amax over its 32 values, every operation rounded to f32:
//   code = rint(x * (amax >= kTinyMax ? 127 / amax : 0))    kTinyMax: kernels/kernel_table.h
//   scale = f16(amax / 127)
//   sum = scale * sum(codes)
// f16() as base/half.h; scales as ggml's q8_0 and q8_1 have them, sums unrounded.
//
// The product, 32 columns after 32 columns, each an exact integer and one or two fused
// multiply-adds:
//   acc = fma(sum_k code_w * code_x, scale_w * scale_x, acc)
//   acc = fma(min_w, sum_x, acc)                        where the type has one
// scale_w = d * s and min_w = -(dmin * m) for q4_k and q5_k; codes of q4_0 and q5_0 are taken as
// they are, with min_w = -8 or -16 * scale_w. Values that are not finite give unspecified results
// in their row.
#ifndef TURBOQUANT_KERNELS_MATMUL_H_
#define TURBOQUANT_KERNELS_MATMUL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cpu_features.h"

namespace turboquant {

inline constexpr int kActivationBlock = 32;

enum class WeightType : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4K, kQ5K };
inline constexpr std::array kAllWeightTypes = {
    WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
    WeightType::kQ8_0, WeightType::kQ4K,  WeightType::kQ5K};
std::string_view Name(WeightType type);  // "q4_0", "q4_k"

struct WeightLayout {
  int columns;   // of a block
  size_t bytes;  // of a block
  size_t codes;  // where in the block
};
constexpr WeightLayout LayoutOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return {32, 18, 2};
    case WeightType::kQ4_1:
      return {32, 20, 4};
    case WeightType::kQ5_0:
      return {32, 22, 6};
    case WeightType::kQ5_1:
      return {32, 24, 8};
    case WeightType::kQ8_0:
      return {32, 34, 2};
    case WeightType::kQ4K:
      return {256, 144, 16};
    case WeightType::kQ5K:
      return {256, 176, 48};
  }
  return {};
}
constexpr size_t QuantizedRowBytes(int num_columns) {
  return static_cast<size_t>(num_columns) / 4 * 5;
}

// x: [num_columns]; out: [QuantizedRowBytes(num_columns)], 4-byte aligned.
using QuantizeRowFn = void (*)(const float* x, int num_columns, uint8_t* out);

struct MatmulArgs {
  WeightType type;
  const uint8_t* weights;  // rows of num_columns weights, weights_stride bytes apart; not aligned
  size_t weights_stride;
  int num_columns;  // a multiple of LayoutOf(type).columns
  // Rows of weights = columns of the output that are computed; multiples of kOutputsPerUnit.
  int first_output, last_output;
  const uint8_t* x;  // quantized rows, x_stride bytes apart; 4-byte aligned, x_stride too
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
// Of an instruction set's rows in the kernel table, or none where it has no kernels of its own.
// kScalar: the plain code that the others equal bit for bit. The CPU must be able to run them.
MatmulKernels MatmulOf(Isa isa);
// The fastest for this CPU, or none where another library is known or thought to be faster
// (docs/decisions/012-matrix-products.md). Looked up once.
const MatmulKernels& HostMatmul();

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_MATMUL_H_
