#include "kernels/matmul.h"

#include "kernels/kernel_table.h"

namespace turboquant {

std::string_view Name(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return "q4_0";
    case WeightType::kQ4_1:
      return "q4_1";
    case WeightType::kQ5_0:
      return "q5_0";
    case WeightType::kQ5_1:
      return "q5_1";
    case WeightType::kQ8_0:
      return "q8_0";
    case WeightType::kQ4K:
      return "q4_k";
    case WeightType::kQ5K:
      return "q5_k";
  }
  return "";
}

MatmulKernels MatmulOf(Isa isa) {
  MatmulKernels kernels;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.isa != isa) continue;
    if (row.op == KernelOp::kQuantizeRow) kernels.quantize = row.quantize_row;
    if (row.op == KernelOp::kMatmul) kernels.matmul = row.matmul;  // one for all types
  }
  return kernels;
}

const MatmulKernels& HostMatmul() {
  static const MatmulKernels kernels = [] {
    const Isa best = BestIsa(DetectCpuFeatures());
    return best == Isa::kScalar ? MatmulKernels{} : MatmulOf(best);
  }();
  return kernels;
}

}  // namespace turboquant
