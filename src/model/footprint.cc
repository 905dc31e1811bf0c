#include "model/footprint.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "model/model_impl.h"
#include "model/step_graph.h"

namespace turboquant {
namespace {

struct Parts {
  const ModelConfig* config;
  const Architecture* architecture;
  const ModelWeights* weights;
};

ModelFootprint Measure(const Parts& parts, const FootprintOptions& options) {
  std::vector<AttentionNode> nodes(static_cast<size_t>(parts.config->num_layers));
  // All rows with logits: no graph of as many rows is larger.
  const auto measure = [&](int num_rows) {
    return MeasureStepGraph({.config = parts.config,
                             .architecture = parts.architecture,
                             .weights = parts.weights,
                             .attention_nodes = nodes,
                             .num_rows = num_rows,
                             .num_outputs = num_rows,
                             .matmul = HostMatmul(),
                             .num_threads = options.num_threads,
                             .pool = nullptr});
  };
  ModelFootprint footprint = {.weights = parts.weights->bytes()};
  size_t work = 0;
  const int largest_kept = std::min(kMaxKeptRows, options.max_batch_tokens);
  for (int rows = largest_kept; rows > std::max(largest_kept - kMaxKeptGraphs, 0); --rows) {
    const StepGraphBytes kept = measure(rows);
    footprint.kept_bytes += kept.graph;
    work = std::max(work, kept.work);
  }
  if (options.max_batch_tokens > kMaxKeptRows) {
    const StepGraphBytes bytes = measure(options.max_batch_tokens);
    footprint.step_bytes = bytes.graph;
    work = std::max(work, bytes.work);
  }
  footprint.step_bytes += work;
  return footprint;
}

}  // namespace

ModelFootprint MeasureFootprint(const Gguf& file, const ModelConfig& config,
                                const FootprintOptions& options) {
  const Architecture* architecture = FindArchitecture(config.architecture);
  CHECK(architecture != nullptr);
  const std::vector<TensorSpec> specs = architecture->tensors(config);
  const auto weights = ModelWeights::Describe(file, specs, options.weights);
  return Measure({&config, architecture, weights.get()}, options);
}

ModelFootprint MeasureFootprint(const Model& model, const FootprintOptions& options) {
  const Model::Impl& impl = model.impl();
  return Measure({&impl.config, impl.architecture, impl.weights.get()}, options);
}

}  // namespace turboquant
