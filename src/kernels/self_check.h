// A quick check of every kernel that this CPU can run, on one shape of ordinary data, against its
// plain counterpart: tells a broken machine, compiler or emulator from a sound one in seconds.
// tests/check_kernels is the thorough one.
#ifndef TURBOQUANT_KERNELS_SELF_CHECK_H_
#define TURBOQUANT_KERNELS_SELF_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"

namespace turboquant {

struct SelfCheckRow {
  std::string_view name;  // "qk/int8/avx2"; prepare_q rows are tested with their qk
  KernelOp op;
  bool skipped = false;  // the CPU lacks what it needs
  bool ok = false;
  // Of codes (qk, pv), weights (matmul, one row) or values (others), from the nearest cache.
  double gb_per_second = 0;
};

// Takes about `seconds`, evenly over the rows; one thread. The comparison itself takes milliseconds
// at most and is never left out.
std::vector<SelfCheckRow> RunKernelSelfCheck(double seconds);
// One row, which the CPU must be able to run.
SelfCheckRow CheckKernelRow(const KernelRow& row, double seconds);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_SELF_CHECK_H_
