// Products of quantized weights against ggml: its quantizer writes the blocks, its dequantizer says
// what they stand for, and its own product is at most as far away as the rounding of activations.
#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "model/ggml_support.h"
#include "model/matmul_node.h"

namespace turboquant {
namespace {

struct Type {
  WeightType ours;
  ggml_type theirs;
};
constexpr Type kTypes[] = {{WeightType::kQ4_0, GGML_TYPE_Q4_0}, {WeightType::kQ4_1, GGML_TYPE_Q4_1},
                           {WeightType::kQ5_0, GGML_TYPE_Q5_0}, {WeightType::kQ5_1, GGML_TYPE_Q5_1},
                           {WeightType::kQ8_0, GGML_TYPE_Q8_0}, {WeightType::kQ4K, GGML_TYPE_Q4_K},
                           {WeightType::kQ5K, GGML_TYPE_Q5_K}};
static_assert(std::size(kTypes) == kAllWeightTypes.size());

constexpr int kColumns = 768, kOutputs = 32, kRows = 11;

std::vector<float> Normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<uint8_t> Quantized(ggml_type type) {
  const std::vector<float> values = Normal(size_t{kColumns} * kOutputs, 1);
  std::vector<uint8_t> weights(ggml_row_size(type, kColumns) * kOutputs);
  ggml_quantize_chunk(type, values.data(), weights.data(), 0, kOutputs, kColumns, nullptr);
  return weights;
}

std::vector<float> Product(const MatmulKernels& kernels, const Type& type,
                           const std::vector<uint8_t>& weights, const std::vector<float>& x,
                           int num_rows) {
  const size_t row_bytes = QuantizedRowBytes(kColumns);
  std::vector<uint8_t> rows(row_bytes * static_cast<size_t>(num_rows));
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    kernels.quantize(x.data() + r * kColumns, kColumns, rows.data() + r * row_bytes);
  }
  std::vector<float> out(static_cast<size_t>(num_rows) * kOutputs);
  kernels.matmul({.type = type.ours,
                  .weights = weights.data(),
                  .weights_stride = ggml_row_size(type.theirs, kColumns),
                  .num_columns = kColumns,
                  .first_output = 0,
                  .last_output = kOutputs,
                  .x = rows.data(),
                  .x_stride = row_bytes,
                  .num_rows = num_rows,
                  .out = out.data(),
                  .out_stride = kOutputs});
  return out;
}

// Of the dequantized weights, in double precision; norms: of the terms of each product.
std::vector<double> Exact(const Type& type, const std::vector<uint8_t>& weights,
                          const std::vector<float>& x, std::vector<double>* norms) {
  std::vector<float> values(size_t{kColumns} * kOutputs);
  ggml_get_type_traits(type.theirs)
      ->to_float(weights.data(), values.data(), static_cast<int64_t>(values.size()));
  std::vector<double> out;
  for (size_t r = 0; r < x.size() / kColumns; ++r) {
    for (size_t n = 0; n < kOutputs; ++n) {
      double sum = 0, squares = 0;
      for (size_t k = 0; k < kColumns; ++k) {
        const double term = static_cast<double>(values[n * kColumns + k]) *
                            static_cast<double>(x[r * kColumns + k]);
        sum += term;
        squares += term * term;
      }
      out.push_back(sum);
      norms->push_back(std::sqrt(squares));
    }
  }
  return out;
}

// Activations that 8 bits hold exactly: whole numbers up to 127, the largest in every block.
std::vector<float> WholeNumbers() {
  std::mt19937 random(3);
  std::vector<float> x(size_t{kColumns} * kRows);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 32 == 5 ? 127.0f : static_cast<float>(static_cast<int>(random() % 255) - 127);
  }
  return x;
}

TEST(MatmulOracleTest, BlocksMeanWhatGgmlSaysTheyMean) {
  const std::vector<float> x = WholeNumbers();
  for (const Type& type : kTypes) {
    const std::vector<uint8_t> weights = Quantized(type.theirs);
    std::vector<double> norms;
    const std::vector<double> expected = Exact(type, weights, x, &norms);
    const std::vector<float> found = Product(MatmulOf(Isa::kScalar), type, weights, x, kRows);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(found[i]), expected[i], 2e-5 * norms[i])
          << ggml_type_name(type.theirs);
    }
  }
}

TEST(MatmulOracleTest, RoundingOfActivationsIsAllThatIsLost) {
  const std::vector<float> x = Normal(size_t{kColumns} * kRows, 4);
  for (const Type& type : kTypes) {
    const std::vector<uint8_t> weights = Quantized(type.theirs);
    std::vector<double> norms;
    const std::vector<double> expected = Exact(type, weights, x, &norms);
    const std::vector<float> found = Product(MatmulOf(Isa::kScalar), type, weights, x, kRows);
    double error = 0, scale = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += (static_cast<double>(found[i]) - expected[i]) *
               (static_cast<double>(found[i]) - expected[i]);
      scale += norms[i] * norms[i];
    }
    // A step of the codes is amax / 127, some 2.2 / 127 of the root mean square: a part in 200.
    EXPECT_LT(std::sqrt(error / scale), 0.008) << ggml_type_name(type.theirs);
    EXPECT_GT(error, 0.0);
  }
}

// The nodes in a graph, several threads, twice: the counters of units must come back to zero.
TEST(MatmulOracleTest, NodesOfAGraphGiveTheProduct) {
  const MatmulKernels kernels = MatmulOf(Isa::kScalar);
  const std::vector<float> x = Normal(size_t{kColumns} * kRows, 4);
  for (const Type& type : kTypes) {
    const std::vector<uint8_t> weights = Quantized(type.theirs);
    const GgmlContextPtr context = NewGgmlContext(16, ggml_graph_overhead());
    ggml_tensor* matrix = ggml_new_tensor_2d(context.get(), type.theirs, kColumns, kOutputs);
    matrix->data = const_cast<uint8_t*>(weights.data());
    ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kColumns, kRows);
    input->data = const_cast<float*>(x.data());
    MatmulNodes products(kernels);
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_tensor* first = products.Product(context.get(), matrix, input);
    ggml_tensor* second = products.Product(context.get(), matrix, input);
    EXPECT_EQ(first->src[1], second->src[1]) << "activations are quantized once";
    ggml_set_output(first);
    ggml_build_forward_expand(graph, first);
    ggml_build_forward_expand(graph, second);
    const GgmlAllocatorPtr allocator(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    ASSERT_TRUE(ggml_gallocr_alloc_graph(allocator.get(), graph));
    const std::vector<float> expected = Product(kernels, type, weights, x, kRows);
    for (const int num_threads : {1, 3, 3, 2}) {
      ggml_cplan plan = ggml_graph_plan(graph, num_threads, nullptr);
      std::vector<uint8_t> work(plan.work_size);
      plan.work_data = work.data();
      ASSERT_EQ(ggml_graph_compute(graph, &plan), GGML_STATUS_SUCCESS);
      for (const ggml_tensor* out : {first, second}) {
        const auto* data = static_cast<const float*>(out->data);
        ASSERT_EQ(std::vector<float>(data, data + expected.size()), expected)
            << ggml_type_name(type.theirs);
      }
    }
  }
}

TEST(MatmulOracleTest, OtherTypesAndShapesAreLeftToGgml) {
  const MatmulKernels kernels = MatmulOf(Isa::kScalar);
  EXPECT_TRUE(CanMultiply(kernels, GGML_TYPE_Q4_K, 256, 16));
  EXPECT_FALSE(CanMultiply(kernels, GGML_TYPE_Q4_K, 128, 16));
  EXPECT_FALSE(CanMultiply(kernels, GGML_TYPE_Q4_0, 32, 24));
  EXPECT_FALSE(CanMultiply(kernels, GGML_TYPE_F16, 256, 16));
  EXPECT_FALSE(CanMultiply({}, GGML_TYPE_Q4_0, 256, 16));
}

}  // namespace
}  // namespace turboquant
