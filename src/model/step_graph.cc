#include "model/step_graph.h"

#include "base/check.h"
#include "model/model_impl.h"

namespace turboquant {
namespace {

constexpr size_t kTensorsPerLayer = 48,
                 kTensorsOutsideLayers = 32;  // llama uses 25 + 9; ggml checks

}  // namespace

size_t StepGraph::bytes() const {
  if (context == nullptr) return 0;
  return ggml_gallocr_get_buffer_size(allocator.get(), 0) + ggml_get_mem_size(context.get());
}

void BuildStepGraph(const StepGraphOptions& options, StepGraph* step) {
  const Model::Impl& source = options.model->impl();
  const size_t max_tensors =
      kTensorsPerLayer * options.attention_nodes.size() + kTensorsOutsideLayers;
  step->num_rows = options.num_rows;
  step->num_outputs = options.num_outputs;
  step->context =
      NewGgmlContext(max_tensors, ggml_graph_overhead_custom(max_tensors, /*grads=*/false));
  step->graph = ggml_new_graph_custom(step->context.get(), max_tensors, /*grads=*/false);
  GraphBuilder builder({.context = step->context.get(),
                        .graph = step->graph,
                        .config = &source.config,
                        .weights = source.weights.get(),
                        .rope_style = source.architecture->rope_style,
                        .attention_nodes = options.attention_nodes,
                        .num_rows = options.num_rows,
                        .num_outputs = options.num_outputs});
  ggml_tensor* logits = source.architecture->build(builder);
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
  CHECK(ggml_gallocr_alloc_graph(step->allocator.get(), step->graph));
  step->plan = ggml_graph_plan(step->graph, options.num_threads, options.pool);
}

}  // namespace turboquant
