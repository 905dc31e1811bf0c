#include "kernels/self_check.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

TEST(KernelSelfCheck, EveryRowOfThisCpuIsRightAndTimed) {
  int ran = 0;
  for (const SelfCheckRow& row : RunKernelSelfCheck(0)) {
    if (row.skipped) continue;
    ++ran;
    EXPECT_TRUE(row.ok) << row.name;
    EXPECT_GT(row.gb_per_second, 0) << row.name;
  }
  EXPECT_GE(ran, 20);  // the scalar rows at least
}

}  // namespace
}  // namespace turboquant
