#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/sample_weights.h"

namespace turboquant {
namespace {

// Rows of random blocks, stored `stride` bytes apart.
struct Weights {
  Weights(WeightType type, int num_outputs, int num_columns, uint32_t seed)
      : stride(static_cast<size_t>(num_columns / LayoutOf(type).columns) * LayoutOf(type).bytes),
        bytes(stride * static_cast<size_t>(num_outputs)) {
    std::mt19937 random(seed);
    FillWeights(type, {}, random, bytes);
  }
  size_t stride;
  std::vector<uint8_t> bytes;
};

std::vector<float> Values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  values[count / 2] = 40;  // an outlier
  return values;
}

struct Shape {
  int num_columns, num_outputs, num_rows;
};

std::vector<uint8_t> Quantized(QuantizeRowFn quantize, const std::vector<float>& x, int columns) {
  const size_t rows = x.size() / static_cast<size_t>(columns), bytes = QuantizedRowBytes(columns);
  std::vector<uint8_t> out(rows * bytes);
  for (size_t r = 0; r < rows; ++r) {
    quantize(x.data() + r * static_cast<size_t>(columns), columns, out.data() + r * bytes);
  }
  return out;
}

std::vector<float> Multiply(MatmulFn matmul, WeightType type, const Weights& weights,
                            const std::vector<uint8_t>& x, const Shape& shape) {
  std::vector<float> out(static_cast<size_t>(shape.num_rows * shape.num_outputs), NAN);
  matmul({.type = type,
          .weights = weights.bytes.data(),
          .weights_stride = weights.stride,
          .num_columns = shape.num_columns,
          .first_output = 0,
          .last_output = shape.num_outputs,
          .x = x.data(),
          .x_stride = QuantizedRowBytes(shape.num_columns),
          .num_rows = shape.num_rows,
          .out = out.data(),
          .out_stride = static_cast<size_t>(shape.num_outputs)});
  return out;
}

// Of every instruction set that the CPU has, also where HostMatmul takes none.
class MatmulIsaTest : public ::testing::TestWithParam<Isa> {};

TEST_P(MatmulIsaTest, EqualsThePlainCodeBitForBit) {
  const MatmulKernels plain = MatmulOf(Isa::kScalar), best = MatmulOf(GetParam());
  if (!CanRun(GetParam(), DetectCpuFeatures())) GTEST_SKIP() << "not on this CPU";
  ASSERT_NE(best.matmul, nullptr);
  for (const WeightType type : kAllWeightTypes) {
    for (Shape shape :
         {Shape{32, 16, 1}, Shape{576, 48, 1}, Shape{576, 48, 2}, Shape{576, 32, 3},
          Shape{1536, 32, 4}, Shape{2080, 16, 7}, Shape{1024, 16, 16}, Shape{1056, 64, 21}}) {
      shape.num_columns += -shape.num_columns & (LayoutOf(type).columns - 1);  // rounded up
      const Weights weights(type, shape.num_outputs, shape.num_columns, 1);
      const auto values = Values(static_cast<size_t>(shape.num_rows * shape.num_columns), 2);
      const auto x = Quantized(plain.quantize, values, shape.num_columns);
      ASSERT_EQ(Quantized(best.quantize, values, shape.num_columns), x);
      const auto expected = Multiply(plain.matmul, type, weights, x, shape);
      const auto found = Multiply(best.matmul, type, weights, x, shape);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(found[i], expected[i])
            << Name(type) << " " << shape.num_columns << "x" << shape.num_outputs << " rows "
            << shape.num_rows << " at " << i;
      }
    }
  }
}

#ifdef TURBOQUANT_HAVE_AVX2
INSTANTIATE_TEST_SUITE_P(Isas, MatmulIsaTest, ::testing::Values(Isa::kAvx2),
                         [](const auto& isa) { return std::string(Name(isa.param)); });
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulIsaTest);
#endif

TEST(MatmulTest, QuantizedRowsHoldWhatTheySay) {
  const std::vector<float> x = Values(64, 9);
  const auto row = Quantized(MatmulOf(Isa::kScalar).quantize, x, 64);
  float scales[2], sums[2];
  std::memcpy(scales, row.data() + 64, sizeof(scales));
  std::memcpy(sums, row.data() + 72, sizeof(sums));
  for (int b = 0; b < 2; ++b) {
    int sum = 0, largest = 0;
    for (int i = 0; i < 32; ++i) {
      const int code = static_cast<int8_t>(row[static_cast<size_t>(32 * b + i)]);
      EXPECT_NEAR(static_cast<float>(code) * scales[b], x[static_cast<size_t>(32 * b + i)],
                  0.51f * scales[b]);
      sum += code;
      largest = std::max(largest, std::abs(code));
    }
    EXPECT_EQ(largest, 127);
    EXPECT_EQ(sums[b], scales[b] * static_cast<float>(sum));
  }
  const auto zeros = Quantized(MatmulOf(Isa::kScalar).quantize, std::vector<float>(32), 32);
  EXPECT_EQ(zeros, std::vector<uint8_t>(40));
}

// 127 / amax would be infinite, and what an infinity becomes as an integer differs between CPUs.
TEST(MatmulTest, BlocksTooSmallForAReciprocalCountAsZero) {
  std::vector<float> tiny(32);
  for (size_t i = 0; i < tiny.size(); ++i) tiny[i] = 1e-40f * (static_cast<float>(i) - 16);
  for (const Isa isa : kAllIsas) {
    const QuantizeRowFn quantize = MatmulOf(isa).quantize;
    if (quantize == nullptr || !CanRun(isa, DetectCpuFeatures())) continue;
    EXPECT_EQ(Quantized(quantize, tiny, 32), std::vector<uint8_t>(40)) << Name(isa);
  }
}

}  // namespace
}  // namespace turboquant
