// The specification: every operation and format in plain loops. Built without auto-vectorisation.
#ifndef TURBOQUANT_KERNELS_SCALAR_KERNELS_H_
#define TURBOQUANT_KERNELS_SCALAR_KERNELS_H_

#include "kernels/kernel_table.h"
#include "kernels/matmul.h"

namespace turboquant::scalar {

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
void QkInt8(const QkArgs& args);
void QkFp8E4m3(const QkArgs& args);
void QkFp8E5m2(const QkArgs& args);
void QkInt6(const QkArgs& args);
void QkInt5(const QkArgs& args);
void QkInt4(const QkArgs& args);
void QkInt3(const QkArgs& args);
void QkInt2(const QkArgs& args);
void QkInt4Sym(const QkArgs& args);
void QkInt4Asym(const QkArgs& args);

void PvF32(const PvArgs& args);
void PvF16(const PvArgs& args);
void PvBf16(const PvArgs& args);
void PvInt8(const PvArgs& args);
void PvFp8E4m3(const PvArgs& args);
void PvFp8E5m2(const PvArgs& args);
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

// kernels/matmul.h
void QuantizeRow(const float* x, int num_columns, uint8_t* out);
void Matmul(const MatmulArgs& args);

}  // namespace turboquant::scalar

#endif  // TURBOQUANT_KERNELS_SCALAR_KERNELS_H_
