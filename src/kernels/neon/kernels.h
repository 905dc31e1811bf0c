// Kernels for Advanced SIMD as every AArch64 CPU has it: files of this folder are compiled for the
// architecture's baseline. QK and PV of the integer formats are in kernels/neondotprod and
// kernels/neoni8mm.
#ifndef TURBOQUANT_KERNELS_NEON_KERNELS_H_
#define TURBOQUANT_KERNELS_NEON_KERNELS_H_

#include "kernels/kernel_table.h"

namespace turboquant::neon {

void PrepareQF32(const PrepareQArgs& args);
void PrepareQF16(const PrepareQArgs& args);
void PrepareQBf16(const PrepareQArgs& args);
void PrepareQFp8E4m3(const PrepareQArgs& args);
void PrepareQFp8E5m2(const PrepareQArgs& args);

void QkF32(const QkArgs& args);
void QkF16(const QkArgs& args);
void QkBf16(const QkArgs& args);
void QkFp8E4m3(const QkArgs& args);
void QkFp8E5m2(const QkArgs& args);

void PvF32(const PvArgs& args);
void PvF16(const PvArgs& args);
void PvBf16(const PvArgs& args);
void PvFp8E4m3(const PvArgs& args);
void PvFp8E5m2(const PvArgs& args);

void EncodeF32(const EncodeArgs& args);
void EncodeF16(const EncodeArgs& args);
void EncodeBf16(const EncodeArgs& args);
void EncodeInt8(const EncodeArgs& args);
void EncodeFp8E4m3(const EncodeArgs& args);
void EncodeFp8E5m2(const EncodeArgs& args);
void EncodeNarrow(const EncodeArgs& args);
void EncodeInt4Sym(const EncodeArgs& args);
void EncodeInt4Asym(const EncodeArgs& args);

void Softmax(const SoftmaxArgs& args);
void ToHalf(const ConvertArgs& args);
void Rotate(const RotateArgs& args);
void FitScales(const FitScalesArgs& args);
void ExpandScales(const ExpandScalesArgs& args);
void MeanDot(const MeanDotArgs& args);

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_KERNELS_H_
