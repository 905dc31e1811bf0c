#include "kernels/self_check.h"

#include <gtest/gtest.h>

#include <bit>
#include <string_view>
#include <vector>

namespace turboquant {
namespace {

TEST(KernelSelfCheck, EveryRowOfThisCpuIsRightAndTimed) {
  const CpuFeatures cpu = DetectCpuFeatures();
  std::vector<std::string_view> expected, ran;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op == KernelOp::kPrepareQ || !cpu.Contains(row.requires_features)) continue;
    expected.push_back(row.name);
  }
  for (const SelfCheckRow& row : RunKernelSelfCheck(0)) {
    if (row.skipped) continue;
    ran.push_back(row.name);
    EXPECT_TRUE(row.ok) << row.name;
    EXPECT_GT(row.gb_per_second, 0) << row.name;
  }
  EXPECT_EQ(ran, expected);
}

// One unit in the last place of the last output, in one way of several that a kernel may take.
template <bool kOfManyRows>
void WrongMatmul(const MatmulArgs& args) {
  MatmulOf(Isa::kScalar).matmul(args);
  if ((args.num_rows > 8) != kOfManyRows) return;
  float* last =
      args.out + static_cast<size_t>(args.num_rows - 1) * args.out_stride + args.last_output - 1;
  *last = std::bit_cast<float>(std::bit_cast<uint32_t>(*last) ^ 1u);
}

void WrongQuantizeRow(const float* x, int num_columns, uint8_t* out) {
  MatmulOf(Isa::kScalar).quantize(x, num_columns, out);
  out[QuantizedRowBytes(num_columns) - 4] ^= 1;  // the last sum
}

TEST(KernelSelfCheck, FindsAWrongProductOfWeights) {
  for (const WeightType type : kAllWeightTypes) {
    KernelRow row = {
        "matmul/wrong", KernelOp::kMatmul, KvCacheDtype::kF32, Isa::kScalar, {}, {}, type};
    row.matmul = MatmulOf(Isa::kScalar).matmul;
    EXPECT_TRUE(CheckKernelRow(row, 0).ok) << Name(type);
    row.matmul = WrongMatmul<false>;
    EXPECT_FALSE(CheckKernelRow(row, 0).ok) << Name(type);
    row.matmul = WrongMatmul<true>;
    EXPECT_FALSE(CheckKernelRow(row, 0).ok) << Name(type);
  }
  KernelRow row = {
      "quantize_row/wrong", KernelOp::kQuantizeRow, KvCacheDtype::kF32, Isa::kScalar, {}, {}};
  row.quantize_row = WrongQuantizeRow;
  EXPECT_FALSE(CheckKernelRow(row, 0).ok);
}

}  // namespace
}  // namespace turboquant
