#include "kernels/matmul.h"

#ifdef TURBOQUANT_HAVE_AVX2
#include "kernels/avx2/kernels.h"
#endif
#include "kernels/scalar/kernels.h"

namespace turboquant {

MatmulKernels ScalarMatmul() { return {scalar::QuantizeRow, scalar::Matmul}; }

MatmulKernels SelectMatmul(const CpuFeatures& cpu) {
#ifdef TURBOQUANT_HAVE_AVX2
  if (cpu.avx2 && !cpu.avx512) return {avx2::QuantizeRow, avx2::Matmul};
#endif
  static_cast<void>(cpu);
  return {};
}

}  // namespace turboquant
