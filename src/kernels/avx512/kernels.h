// The AVX-512 kernels: F, BW, DQ, VL and VNNI, nothing beyond. Contracts: kernels/kernel_table.h;
// shape and reasons: docs/kernels/avx512.md. Files in this folder take plain pointers and define
// nothing but these functions: whatever else they need has internal linkage, so that no AVX-512
// copy of a shared inline function can reach the rest of the program.
#ifndef TURBOQUANT_KERNELS_AVX512_KERNELS_H_
#define TURBOQUANT_KERNELS_AVX512_KERNELS_H_

#include "kernels/kernel_table.h"

namespace turboquant::avx512 {

// Prepared rows, PreparedQBytes apart:
//   integer formats: [head_dim/4][4 s8 hi, 4 s8 lo] | f32 sq | i32 [num_groups] sums of q_int q_int
//   = 256 * hi + lo f32, f16, bf16:  f32 [head_dim] fp8:             f32 [head_dim/4][4], channels
//   of a quad in the order 0 2 1 3
//   narrow formats:  s8 [head_dim] | f32 sq | i32 sum of the codes
void PrepareQF32(const PrepareQArgs& args);
void PrepareQF16(const PrepareQArgs& args);
void PrepareQBf16(const PrepareQArgs& args);
void PrepareQInt8(const PrepareQArgs& args);
void PrepareQFp8E4m3(const PrepareQArgs& args);
void PrepareQFp8E5m2(const PrepareQArgs& args);
void PrepareQNarrow(const PrepareQArgs& args);
void PrepareQInt4Sym(const PrepareQArgs& args);
void PrepareQInt4Asym(const PrepareQArgs& args);

void QkF32(const QkArgs& args);
void QkF16(const QkArgs& args);
void QkBf16(const QkArgs& args);
void QkFp8E4m3(const QkArgs& args);
void QkFp8E5m2(const QkArgs& args);
void QkInt8(const QkArgs& args);
void QkInt6(const QkArgs& args);
void QkInt5(const QkArgs& args);
void QkInt4(const QkArgs& args);
void QkInt3(const QkArgs& args);
void QkInt2(const QkArgs& args);
void QkInt4Sym(const QkArgs& args);
void QkInt4Asym(const QkArgs& args);

void Softmax(const SoftmaxArgs& args);

void PvF32(const PvArgs& args);
void PvF16(const PvArgs& args);
void PvBf16(const PvArgs& args);
void PvFp8E4m3(const PvArgs& args);
void PvFp8E5m2(const PvArgs& args);
void PvInt8(const PvArgs& args);
void PvInt6(const PvArgs& args);
void PvInt5(const PvArgs& args);
void PvInt4(const PvArgs& args);
void PvInt3(const PvArgs& args);
void PvInt2(const PvArgs& args);
void PvInt4Sym(const PvArgs& args);
void PvInt4Asym(const PvArgs& args);

void EncodeF32(const EncodeArgs& args);
void EncodeF16(const EncodeArgs& args);
void EncodeBf16(const EncodeArgs& args);
void EncodeFp8E4m3(const EncodeArgs& args);
void EncodeFp8E5m2(const EncodeArgs& args);
void EncodeInt8(const EncodeArgs& args);
void EncodeInt4Sym(const EncodeArgs& args);
void EncodeInt4Asym(const EncodeArgs& args);

void ToHalf(const ConvertArgs& args);

}  // namespace turboquant::avx512

#endif  // TURBOQUANT_KERNELS_AVX512_KERNELS_H_
