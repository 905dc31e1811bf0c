#include "kernels/rows.h"

namespace turboquant::avx512 {

std::span<const KernelRow> Rows() { return {}; }

}  // namespace turboquant::avx512
