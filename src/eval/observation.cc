#include "eval/observation.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "engine/model_runner.h"
#include "planner/cache_plan.h"
#include "planner/host.h"

namespace turboquant {
namespace {

constexpr size_t kChunkTokens = 256;

Result<std::unique_ptr<ModelRunner>> MakeRunner(std::shared_ptr<const Model> model, int max_context,
                                                const ObservationOptions& options) {
  TQ_ASSIGN_OR_RETURN(const uint64_t usable, UsableMemoryBytes());
  const CachePlanOptions cache = {.kv_cache_dtype = "f16", .max_model_len = max_context};
  TQ_ASSIGN_OR_RETURN(CachePlan plan,
                      PlanCache(model->config(), cache, {usable, model->weight_bytes()}));
  return ModelRunner::Create(std::move(model), {.cache = std::move(plan.config),
                                                .num_threads = options.num_threads,
                                                .max_batch_tokens = kChunkTokens,
                                                .max_context = max_context,
                                                .isa = options.isa});
}

}  // namespace

Result<std::unique_ptr<KvStatistics>> ObserveModel(std::shared_ptr<const Model> model,
                                                   const std::vector<std::vector<int32_t>>& texts,
                                                   const ObservationOptions& options) {
  size_t longest = 0;
  int64_t total = 0, done = 0;
  for (const std::vector<int32_t>& text : texts) {
    longest = std::max(longest, text.size());
    total += static_cast<int64_t>(text.size());
  }
  if (total == 0) return Fail(ErrorCode::kInvalidArgument, "calibration: the texts hold no token");
  TQ_ASSIGN_OR_RETURN(const auto runner,
                      MakeRunner(std::move(model), static_cast<int>(longest), options));
  auto statistics = std::make_unique<KvStatistics>(runner->cache().config().layers);
  runner->attention().set_observer(statistics.get());
  for (const std::vector<int32_t>& text : texts) {
    const SequenceId sequence = runner->cache().AddSequence().value();
    for (size_t at = 0; at < text.size(); at += kChunkTokens) {
      if (options.stop != nullptr && options.stop->load()) {
        return Fail(ErrorCode::kInterrupted, "calibration: interrupted after {} of {} tokens", done,
                    total);
      }
      const auto chunk = std::span(text).subspan(at, std::min(kChunkTokens, text.size() - at));
      CHECK(runner->cache().AllocateSlots(sequence, static_cast<int>(chunk.size())));
      const StepInput input = {sequence, chunk, StepInput::Logits::kLast};
      runner->Execute({&input, 1});
      done += static_cast<int64_t>(chunk.size());
      if (options.progress) options.progress(done, total);
    }
    runner->cache().Free(sequence);
  }
  runner->attention().set_observer(nullptr);
  return statistics;
}

}  // namespace turboquant
