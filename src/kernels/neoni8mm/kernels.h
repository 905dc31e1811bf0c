// Kernels for AArch64 CPUs with the matrix products of bytes, smmla and ummla (FEAT_I8MM), beside
// sdot and udot: QK and PV of the integer formats. Files of this folder are compiled for those and
// run only where the CPU has them.
#ifndef TURBOQUANT_KERNELS_NEONI8MM_KERNELS_H_
#define TURBOQUANT_KERNELS_NEONI8MM_KERNELS_H_

#include "kernels/kernel_table.h"

namespace turboquant::neoni8mm {

void PrepareQInt8(const PrepareQArgs& args);
void PrepareQNarrow(const PrepareQArgs& args);
void PrepareQInt4Sym(const PrepareQArgs& args);
void PrepareQInt4Asym(const PrepareQArgs& args);

void QkInt8(const QkArgs& args);
void QkInt6(const QkArgs& args);
void QkInt5(const QkArgs& args);
void QkInt4(const QkArgs& args);
void QkInt3(const QkArgs& args);
void QkInt2(const QkArgs& args);
void QkInt4Sym(const QkArgs& args);
void QkInt4Asym(const QkArgs& args);

void PvInt8(const PvArgs& args);
void PvInt6(const PvArgs& args);
void PvInt5(const PvArgs& args);
void PvInt4(const PvArgs& args);
void PvInt3(const PvArgs& args);
void PvInt2(const PvArgs& args);
void PvInt4Sym(const PvArgs& args);
void PvInt4Asym(const PvArgs& args);

}  // namespace turboquant::neoni8mm

#endif  // TURBOQUANT_KERNELS_NEONI8MM_KERNELS_H_
