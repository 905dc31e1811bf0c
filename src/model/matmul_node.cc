#include "model/matmul_node.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"

namespace turboquant {
namespace {

// Units per thread that a product should have, so that a thread whose core is taken away holds up
// the others by little; and rows that are worth unpacking weights for.
constexpr int kUnitsPerThread = 8;
constexpr int kRowsPerUnit = 256;

std::optional<WeightType> TypeOf(ggml_type type) {
  switch (static_cast<int>(type)) {
    case GGML_TYPE_Q4_0:
      return WeightType::kQ4_0;
    case GGML_TYPE_Q4_1:
      return WeightType::kQ4_1;
    case GGML_TYPE_Q5_0:
      return WeightType::kQ5_0;
    case GGML_TYPE_Q5_1:
      return WeightType::kQ5_1;
    case GGML_TYPE_Q8_0:
      return WeightType::kQ8_0;
    case GGML_TYPE_Q4_K:
      return WeightType::kQ4K;
    case GGML_TYPE_Q5_K:
      return WeightType::kQ5K;
    default:
      return std::nullopt;
  }
}

// Rows of ne[1] x ne[0] without gaps inside a row; repacked weights have a layout of their own.
bool HasPlainRows(const ggml_tensor* tensor) {
  const bool repacked = tensor->buffer != nullptr && !ggml_backend_buffer_is_host(tensor->buffer);
  return !repacked && tensor->ne[2] == 1 && tensor->ne[3] == 1 &&
         tensor->nb[0] == ggml_type_size(tensor->type);
}

// dst: i8 [QuantizedRowBytes, rows]
void QuantizeNode(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto* kernels = static_cast<const MatmulKernels*>(userdata);
  const ggml_tensor* x = dst->src[0];
  for (int64_t row = ith; row < x->ne[1]; row += nth) {
    kernels->quantize(reinterpret_cast<const float*>(static_cast<const char*>(x->data) +
                                                     static_cast<size_t>(row) * x->nb[1]),
                      static_cast<int>(x->ne[0]),
                      static_cast<uint8_t*>(dst->data) + static_cast<size_t>(row) * dst->nb[1]);
  }
}

// How a product is cut into units: ranges of outputs, and of rows where there are many.
struct Cut {
  int outputs_per_unit, output_units, row_units;
  Cut(const ggml_tensor* dst, int num_threads) {
    const int panels = static_cast<int>(dst->ne[0]) / kOutputsPerUnit;
    row_units = (static_cast<int>(dst->ne[1]) + kRowsPerUnit - 1) / kRowsPerUnit;
    const int wanted = (kUnitsPerThread * num_threads + row_units - 1) / row_units;
    const int panels_per_unit = std::max(1, panels / wanted);
    outputs_per_unit = panels_per_unit * kOutputsPerUnit;
    output_units = (panels + panels_per_unit - 1) / panels_per_unit;
  }
};

// dst: f32 [outputs, rows]
void ProductNode(ggml_tensor* dst, int ith, int nth, void* userdata) {
  static_cast<void>(ith);
  auto* node = static_cast<MatmulNode*>(userdata);
  const ggml_tensor *weights = dst->src[0], *x = dst->src[1];
  const Cut cut(dst, nth);
  const int num_outputs = static_cast<int>(dst->ne[0]), num_rows = static_cast<int>(dst->ne[1]);
  const int num_units = cut.output_units * cut.row_units;
  for (int i; (i = node->next.fetch_add(1, std::memory_order_relaxed)) < num_units;) {
    const int first_output = i / cut.row_units * cut.outputs_per_unit;
    const int first_row = i % cut.row_units * kRowsPerUnit;
    node->kernels.matmul(
        {.type = node->type,
         .weights = static_cast<const uint8_t*>(weights->data),
         .weights_stride = weights->nb[1],
         .num_columns = static_cast<int>(weights->ne[0]),
         .first_output = first_output,
         .last_output = std::min(first_output + cut.outputs_per_unit, num_outputs),
         .x = static_cast<const uint8_t*>(x->data) + static_cast<size_t>(first_row) * x->nb[1],
         .x_stride = x->nb[1],
         .num_rows = std::min(kRowsPerUnit, num_rows - first_row),
         .out = reinterpret_cast<float*>(static_cast<char*>(dst->data) +
                                         static_cast<size_t>(first_row) * dst->nb[1]),
         .out_stride = dst->nb[1] / sizeof(float)});
  }
  if (node->finished.fetch_add(1, std::memory_order_acq_rel) + 1 < nth) return;
  node->next.store(0, std::memory_order_relaxed);
  node->finished.store(0, std::memory_order_relaxed);
}

}  // namespace

bool CanMultiply(const MatmulKernels& kernels, ggml_type type, int64_t columns, int64_t outputs) {
  const std::optional<WeightType> ours = TypeOf(type);
  return kernels.matmul != nullptr && ours.has_value() && columns % LayoutOf(*ours).columns == 0 &&
         outputs % kOutputsPerUnit == 0;
}

ggml_tensor* MatmulNodes::Product(ggml_context* context, ggml_tensor* weights, ggml_tensor* x) {
  const bool ours = CanMultiply(kernels_, weights->type, weights->ne[0], weights->ne[1]) &&
                    HasPlainRows(weights) && HasPlainRows(x) && x->type == GGML_TYPE_F32;
  if (!ours) return ggml_mul_mat(context, weights, x);
  CHECK_EQ(weights->ne[0], x->ne[0]);
  if (x != x_) {
    x_ = x;
    const auto row_bytes = static_cast<int64_t>(QuantizedRowBytes(static_cast<int>(x->ne[0])));
    quantized_ = ggml_custom_4d(context, GGML_TYPE_I8, row_bytes, x->ne[1], 1, 1, &x, 1,
                                QuantizeNode, GGML_N_TASKS_MAX, &kernels_);
  }
  MatmulNode& node = nodes_.emplace_back();
  node.kernels = kernels_;
  node.type = *TypeOf(weights->type);
  std::array<ggml_tensor*, 2> sources = {weights, quantized_};
  return ggml_custom_4d(context, GGML_TYPE_F32, weights->ne[1], x->ne[1], 1, 1, sources.data(), 2,
                        ProductNode, GGML_N_TASKS_MAX, &node);
}

}  // namespace turboquant
