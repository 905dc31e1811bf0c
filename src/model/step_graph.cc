#include "model/step_graph.h"

#include "base/check.h"

namespace turboquant {
namespace {

constexpr size_t kTensorsPerLayer = 48,
                 kTensorsOutsideLayers = 32;  // llama uses 25 + 9; ggml checks

}  // namespace

size_t StepGraph::bytes() const {
  if (context == nullptr) return 0;
  return ggml_gallocr_get_buffer_size(allocator.get(), 0) + ggml_get_mem_size(context.get());
}

namespace {

// The graph without memory for its tensors.
void DescribeStepGraph(const StepGraphOptions& options, StepGraph* step) {
  const size_t max_tensors =
      kTensorsPerLayer * options.attention_nodes.size() + kTensorsOutsideLayers;
  step->num_rows = options.num_rows;
  step->num_outputs = options.num_outputs;
  step->context =
      NewGgmlContext(max_tensors, ggml_graph_overhead_custom(max_tensors, /*grads=*/false));
  step->graph = ggml_new_graph_custom(step->context.get(), max_tensors, /*grads=*/false);
  step->products = std::make_unique<MatmulNodes>(options.matmul);
  GraphBuilder builder({.context = step->context.get(),
                        .graph = step->graph,
                        .config = options.config,
                        .weights = options.weights,
                        .rope_style = options.architecture->rope_style,
                        .attention_nodes = options.attention_nodes,
                        .products = step->products.get(),
                        .num_rows = options.num_rows,
                        .num_outputs = options.num_outputs});
  ggml_tensor* logits = options.architecture->build(builder);
  step->tokens = builder.tokens();
  step->positions = builder.positions();
  step->output_rows = builder.output_rows();
  step->logits = nullptr;
  if (options.num_outputs > 0) {
    step->logits = logits;
    ggml_build_forward_expand(step->graph, logits);
    logits->data = step;  // any address: tells the allocator that this tensor has its place
  }
  if (step->allocator == nullptr)
    step->allocator.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
}

}  // namespace

void BuildStepGraph(const StepGraphOptions& options, StepGraph* step) {
  DescribeStepGraph(options, step);
  CHECK(ggml_gallocr_alloc_graph(step->allocator.get(), step->graph));
  step->plan = ggml_graph_plan(step->graph, options.num_threads, options.pool);
}

StepGraphBytes MeasureStepGraph(const StepGraphOptions& options) {
  StepGraph step;
  DescribeStepGraph(options, &step);
  size_t buffer_bytes = 0;
  ggml_gallocr_reserve_n_size(step.allocator.get(), step.graph, nullptr, nullptr, &buffer_bytes);
  const ggml_cplan plan = ggml_graph_plan(step.graph, options.num_threads, nullptr);
  return {.graph = buffer_bytes + ggml_used_mem(step.context.get()), .work = plan.work_size};
}

}  // namespace turboquant
