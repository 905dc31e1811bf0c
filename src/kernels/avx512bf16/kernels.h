// BF16 dot products (vdpbf16ps) for bf16 caches. Contracts: kernels/kernel_table.h; the rules of
// kernels/avx512/kernels.h hold here too.
#ifndef TURBOQUANT_KERNELS_AVX512BF16_KERNELS_H_
#define TURBOQUANT_KERNELS_AVX512BF16_KERNELS_H_

#include "kernels/kernel_table.h"

namespace turboquant::avx512bf16 {

// Prepared rows: [head_dim/2][2 bf16 hi, 2 bf16 lo], q' = hi + lo to about 16 bits.
void PrepareQBf16(const PrepareQArgs& args);
void QkBf16(const QkArgs& args);
// p is rounded to bf16 (relative error 2^-8 per weight).
void PvBf16(const PvArgs& args);

}  // namespace turboquant::avx512bf16

#endif  // TURBOQUANT_KERNELS_AVX512BF16_KERNELS_H_
