// Matrix products of our own kernels (kernels/matmul.h) as nodes of a ggml graph: one that
// quantizes the activations, which several products may share, and one per product. Only for
// model/.
#ifndef TURBOQUANT_MODEL_MATMUL_NODE_H_
#define TURBOQUANT_MODEL_MATMUL_NODE_H_

#include <atomic>
#include <deque>

#include "kernels/matmul.h"
#include "model/ggml_support.h"

namespace turboquant {

// What a product's node points to; lives as long as the graph.
struct MatmulNode {
  MatmulKernels kernels;
  WeightType type;
  // Units of the node that have been taken, and threads that found none left: the last of these
  // makes both zero again for the next run of the graph.
  std::atomic<int> next{0}, finished{0};
};

// Whether one of these kernels multiplies matrices of this type and shape, [columns, outputs], from
// the layout of the file.
bool CanMultiply(const MatmulKernels& kernels, ggml_type type, int64_t columns, int64_t outputs);

class MatmulNodes {
 public:
  // kernels: none = every product is ggml's.
  explicit MatmulNodes(const MatmulKernels& kernels) : kernels_(kernels) {}

  // weights * x, [outputs, rows], of ggml_mul_mat's operands. ggml's where we have no kernel for
  // type, shape or place of the weights.
  ggml_tensor* Product(ggml_context* context, ggml_tensor* weights, ggml_tensor* x);

 private:
  MatmulKernels kernels_;
  std::deque<MatmulNode> nodes_;
  // The last activations and their quantized form.
  ggml_tensor* x_ = nullptr;
  ggml_tensor* quantized_ = nullptr;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_MATMUL_NODE_H_
