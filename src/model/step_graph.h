// The graph of a step of one shape, placed in memory and planned: ready to run again and again.
// Only for model/.
#ifndef TURBOQUANT_MODEL_STEP_GRAPH_H_
#define TURBOQUANT_MODEL_STEP_GRAPH_H_

#include <cstddef>
#include <memory>
#include <span>

#include "model/ggml_support.h"
#include "model/graph_builder.h"
#include "model/matmul_node.h"
#include "model/model.h"

namespace turboquant {

struct StepGraph {
  int num_rows = 0, num_outputs = 0;
  GgmlContextPtr context;
  std::unique_ptr<MatmulNodes> products;  // of the graph
  GgmlAllocatorPtr allocator;             // kept and grown when the place is used for another shape
  ggml_cgraph* graph = nullptr;
  ggml_tensor *tokens = nullptr, *positions = nullptr, *output_rows = nullptr;  // inputs, i32
  ggml_tensor* logits = nullptr;  // its data is the caller's; null where no logits are wanted
  ggml_cplan plan{};              // without work memory

  size_t bytes() const;
};

struct StepGraphOptions {
  const ModelConfig* config;
  const Architecture* architecture;
  const ModelWeights* weights;
  std::span<AttentionNode> attention_nodes;  // one per layer, outlives the graph
  int num_rows, num_outputs;
  MatmulKernels matmul;  // none = ggml's
  int num_threads;
  ggml_threadpool* pool;
};
void BuildStepGraph(const StepGraphOptions& options, StepGraph* step);

// Bytes that the graph would hold once built, and the scratch that running it would need. Nothing
// is allocated but descriptions: the weights may be only described (ModelWeights::Describe).
struct StepGraphBytes {
  size_t graph = 0, work = 0;
};
StepGraphBytes MeasureStepGraph(const StepGraphOptions& options);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_STEP_GRAPH_H_
