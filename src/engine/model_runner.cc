#include "engine/model_runner.h"

#include <chrono>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "engine/thread_governor.h"
#include "model/step_limits.h"

namespace turboquant {
namespace {

Status Validate(const ModelConfig& model, const ModelRunnerOptions& options) {
  TQ_RETURN_IF_ERROR(CheckStepLimits(options.max_batch_tokens, options.num_threads));
  if (options.max_context < 1) {
    return Fail(ErrorCode::kInvalidArgument, "context of {} tokens: must be at least 1",
                options.max_context);
  }
  if (options.cache.layers.size() != static_cast<size_t>(model.num_layers)) {
    return Fail(ErrorCode::kInvalidArgument, "a cache of {} layers does not fit a model of {}",
                options.cache.layers.size(), model.num_layers);
  }
  for (const KvCacheSpec& spec : options.cache.layers) {
    if (spec.num_kv_heads == model.num_kv_heads && spec.head_dim == model.head_dim) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "a cache of {} heads of {} channels does not fit a model of {} of {}",
                spec.num_kv_heads, spec.head_dim, model.num_kv_heads, model.head_dim);
  }
  return {};
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of all threads of the process.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

struct ModelRunner::Impl {
  Impl(std::shared_ptr<const Model> the_model, std::unique_ptr<KvCacheManager> the_cache,
       const KernelTable& table, const ModelRunnerOptions& options)
      : model(std::move(the_model)),
        cache(std::move(the_cache)),
        kernels(table),
        attention(cache.get(), &kernels, model->AttentionParams(),
                  {.max_batch_tokens = options.max_batch_tokens,
                   .max_num_seqs = cache->config().max_num_seqs,
                   .max_context = options.max_context,
                   .max_threads = options.num_threads}),
        graph(model, options.num_threads),
        governor(options.num_threads),
        num_threads(options.num_threads),
        max_batch_tokens(options.max_batch_tokens) {}

  void Append(const StepInput& input);
  void Forward();

  std::shared_ptr<const Model> model;
  std::unique_ptr<KvCacheManager> cache;
  KernelTable kernels;
  PagedAttention attention;
  GraphRunner graph;
  ThreadGovernor governor;
  int num_threads, max_batch_tokens;
  // The step that runs.
  std::vector<SequenceChunk> chunks;
  std::vector<int32_t> tokens, positions, logits_rows;  // [rows], [rows], [rows with logits]
  std::vector<float> logits;  // [rows with logits][vocab_size]; grows to the largest step
};

void ModelRunner::Impl::Append(const StepInput& input) {
  CHECK(!input.tokens.empty());
  const auto first_row = static_cast<int>(tokens.size());
  const auto num_tokens = static_cast<int>(input.tokens.size());
  const int start = cache->NumTokens(input.sequence);
  chunks.push_back({.sequence = input.sequence,
                    .start = start,
                    .num_tokens = num_tokens,
                    .first_row = first_row});
  tokens.insert(tokens.end(), input.tokens.begin(), input.tokens.end());
  for (int i = 0; i < num_tokens; ++i) positions.push_back(start + i);
  switch (input.logits) {
    case StepInput::Logits::kNone:
      break;
    case StepInput::Logits::kLast:
      logits_rows.push_back(first_row + num_tokens - 1);
      break;
    case StepInput::Logits::kAll:
      for (int i = 0; i < num_tokens; ++i) logits_rows.push_back(first_row + i);
      break;
  }
}

void ModelRunner::Impl::Forward() {
  const double wall = WallSeconds(), cpu = CpuSeconds();
  graph.set_num_threads(governor.num_threads());
  graph.Forward(&attention, tokens, positions, logits_rows, logits.data());
  governor.Report({.num_rows = static_cast<int>(tokens.size()),
                   .wall_seconds = WallSeconds() - wall,
                   .cpu_seconds = CpuSeconds() - cpu});
}

ModelRunner::ModelRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelRunner::~ModelRunner() = default;

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::shared_ptr<const Model> model,
                                                         ModelRunnerOptions options) {
  TQ_RETURN_IF_ERROR(Validate(model->config(), options));
  TQ_ASSIGN_OR_RETURN(const KernelTable kernels, SelectKernels(options.isa));
  TQ_ASSIGN_OR_RETURN(auto cache, KvCacheManager::Create(std::move(options.cache)));
  return std::unique_ptr<ModelRunner>(new ModelRunner(
      std::make_unique<Impl>(std::move(model), std::move(cache), kernels, options)));
}

std::span<const float> ModelRunner::Execute(std::span<const StepInput> inputs) {
  Impl& impl = *impl_;
  impl.chunks.clear();
  impl.tokens.clear();
  impl.positions.clear();
  impl.logits_rows.clear();
  for (const StepInput& input : inputs) impl.Append(input);
  CHECK_LE(impl.tokens.size(), static_cast<size_t>(impl.max_batch_tokens));
  const size_t logits_size =
      impl.logits_rows.size() * static_cast<size_t>(impl.model->config().vocab_size);
  if (impl.logits.size() < logits_size) impl.logits.resize(logits_size);
  impl.attention.BeginStep(impl.chunks);
  impl.Forward();
  for (const StepInput& input : inputs) impl.cache->Commit(input.sequence);
  return {impl.logits.data(), logits_size};
}

KvCacheManager& ModelRunner::cache() { return *impl_->cache; }
PagedAttention& ModelRunner::attention() { return impl_->attention; }
const Model& ModelRunner::model() const { return *impl_->model; }
const KernelTable& ModelRunner::kernels() const { return impl_->kernels; }
int ModelRunner::max_batch_tokens() const { return impl_->max_batch_tokens; }
size_t ModelRunner::buffer_bytes() const {
  const size_t threads_scratch =
      impl_->attention.scratch_bytes_per_thread() * static_cast<size_t>(impl_->num_threads);
  return impl_->graph.buffer_bytes() + impl_->attention.shared_bytes() + threads_scratch +
         impl_->logits.capacity() * sizeof(float);
}

}  // namespace turboquant
