#include <algorithm>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/footprint.h"
#include "model/ggml_support.h"
#include "model/graph_builder.h"
#include "model/model.h"
#include "model/model_impl.h"
#include "model/step_graph.h"

namespace turboquant {
namespace {

void SetInput(ggml_tensor* input, std::span<const int32_t> values) {
  CHECK_EQ(values.size_bytes(), ggml_nbytes(input));
  std::memcpy(input->data, values.data(), values.size_bytes());
}

GgmlThreadPoolPtr NewThreadPool(int num_threads) {
  ggml_threadpool_params params = ggml_threadpool_params_default(num_threads);
  params.poll = 0;  // workers sleep between steps (docs/decisions/002-ggml-threads.md)
  return GgmlThreadPoolPtr(ggml_threadpool_new(&params));
}

}  // namespace

struct GraphRunner::Impl {
  std::shared_ptr<const Model> model;
  int max_threads = 1, num_threads = 1;
  GgmlThreadPoolPtr pool;
  PagedAttention* attention = nullptr;  // of the step that runs
  std::vector<AttentionNode> nodes;     // one per layer, pointed to by the graphs
  std::list<StepGraph> kept;            // most recently used first
  StepGraph large;
  std::vector<uint8_t> work;  // scratch of ggml's matrix products

  StepGraph& GraphFor(int num_rows, int num_outputs);
  void Build(int num_rows, int num_outputs, StepGraph* step);
};

void GraphRunner::Impl::Build(int num_rows, int num_outputs, StepGraph* step) {
  const Model::Impl& source = model->impl();
  BuildStepGraph({.config = &source.config,
                  .architecture = source.architecture,
                  .weights = source.weights.get(),
                  .attention_nodes = nodes,
                  .num_rows = num_rows,
                  .num_outputs = num_outputs,
                  .matmul = HostMatmul(),
                  .num_threads = max_threads,
                  .pool = pool.get()},
                 step);
}

StepGraph& GraphRunner::Impl::GraphFor(int num_rows, int num_outputs) {
  const auto matches = [&](const StepGraph& step) {
    return step.num_rows == num_rows && step.num_outputs == num_outputs;
  };
  if (num_rows > kMaxKeptRows) {
    if (!matches(large)) Build(num_rows, num_outputs, &large);
    return large;
  }
  const auto it = std::find_if(kept.begin(), kept.end(), matches);
  if (it != kept.end()) {
    kept.splice(kept.begin(), kept, it);
  } else {
    if (kept.size() == static_cast<size_t>(kMaxKeptGraphs)) kept.pop_back();
    Build(num_rows, num_outputs, &kept.emplace_front());
  }
  return kept.front();
}

GraphRunner::GraphRunner(std::shared_ptr<const Model> model, int max_threads)
    : impl_(std::make_unique<Impl>()) {
  CHECK_GE(max_threads, 1);
  CHECK_LE(max_threads, GGML_MAX_N_THREADS);
  impl_->model = std::move(model);
  impl_->max_threads = impl_->num_threads = max_threads;
  impl_->pool = NewThreadPool(max_threads);
  for (int layer = 0; layer < impl_->model->config().num_layers; ++layer) {
    impl_->nodes.push_back({.attention = &impl_->attention, .layer = layer});
  }
}

GraphRunner::~GraphRunner() = default;

void GraphRunner::set_num_threads(int num_threads) {
  CHECK_GE(num_threads, 1);
  CHECK_LE(num_threads, impl_->max_threads);
  impl_->num_threads = num_threads;
}

void GraphRunner::Forward(PagedAttention* attention, std::span<const int32_t> tokens,
                          std::span<const int32_t> positions, std::span<const int32_t> logits_rows,
                          float* logits) {
  const int vocab_size = impl_->model->config().vocab_size;
  CHECK(!tokens.empty());
  CHECK_EQ(tokens.size(), positions.size());
  for (const int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, vocab_size);
  }
  for (const int32_t row : logits_rows) {
    CHECK_GE(row, 0);
    CHECK_LT(static_cast<size_t>(row), tokens.size());
  }
  StepGraph& step =
      impl_->GraphFor(static_cast<int>(tokens.size()), static_cast<int>(logits_rows.size()));
  SetInput(step.tokens, tokens);
  SetInput(step.positions, positions);
  if (step.logits != nullptr) {
    SetInput(step.output_rows, logits_rows);
    step.logits->data = logits;
  }
  if (impl_->work.size() < step.plan.work_size) impl_->work.resize(step.plan.work_size);
  step.plan.work_data = impl_->work.data();
  step.plan.n_threads = impl_->num_threads;  // it was planned for the most
  impl_->attention = attention;
  CHECK_EQ(ggml_graph_compute(step.graph, &step.plan), GGML_STATUS_SUCCESS);
  impl_->attention = nullptr;
}

size_t GraphRunner::buffer_bytes() const {
  size_t bytes = impl_->work.capacity() + impl_->large.bytes();
  for (const StepGraph& step : impl_->kept) bytes += step.bytes();
  return bytes;
}

}  // namespace turboquant
