#include "kernels/matmul.h"

#ifdef TURBOQUANT_HAVE_AVX2
#include "kernels/avx2/kernels.h"
#endif
#include "kernels/scalar/kernels.h"

namespace turboquant {

MatmulKernels MatmulOf(Isa isa) {
  if (isa == Isa::kScalar) return {scalar::QuantizeRow, scalar::Matmul};
#ifdef TURBOQUANT_HAVE_AVX2
  if (isa == Isa::kAvx2) return {avx2::QuantizeRow, avx2::Matmul};
#endif
  return {};
}

const MatmulKernels& HostMatmul() {
  static const MatmulKernels kernels = [] {
    const Isa best = BestIsa(DetectCpuFeatures());
    return best == Isa::kScalar ? MatmulKernels{} : MatmulOf(best);
  }();
  return kernels;
}

}  // namespace turboquant
