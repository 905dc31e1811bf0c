// What a step costs beside the model's arithmetic: building the graph where its shape is new, and
// scheduling.
//
//   step_cost MODEL.gguf [REPETITIONS]     one thread; its CPU time, so that others count little
//
// Graph: the same decode step (one row at depth 0), once with its graph kept from the step before,
// once after so many other shapes that its graph has been dropped and is built anew; medians over
// the repetitions. Scheduling: one Scheduler::Schedule of n decoding sequences, with Commit and
// AppendToken; mean over 1000 steps.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "base/check.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "planner/cache_plan.h"

namespace turboquant {
namespace {

constexpr int kMaxContext = 2048;
constexpr int kOtherShapes = 18;  // more than GraphRunner keeps

double CpuMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

KvCacheConfig CacheConfig(const ModelConfig& model, int max_num_seqs) {
  const CachePlanOptions options = {.max_num_seqs = max_num_seqs, .max_model_len = kMaxContext};
  auto plan = PlanCache(model, options, {.usable_bytes = uint64_t{1} << 35});
  CHECK(plan.has_value());
  return std::move(plan->config);
}

// One step of num_rows tokens in a new sequence.
double Step(ModelRunner* runner, int num_rows, StepInput::Logits logits) {
  const std::vector<int32_t> tokens(static_cast<size_t>(num_rows), 1);
  const SequenceId id = *runner->cache().AddSequence();
  CHECK(runner->cache().AllocateSlots(id, num_rows));
  const StepInput input = {.sequence = id, .tokens = tokens, .logits = logits};
  const double begin = CpuMicroseconds();
  runner->Execute({&input, 1});
  const double time = CpuMicroseconds() - begin;
  runner->cache().Free(id);
  return time;
}

void MeasureGraph(const std::shared_ptr<const Model>& model, int repetitions) {
  using Logits = StepInput::Logits;
  auto runner = ModelRunner::Create(
      model, {.cache = CacheConfig(model->config(), 1), .max_context = kMaxContext});
  CHECK(runner.has_value());
  std::vector<double> built, reused;
  for (int i = 0; i < repetitions; ++i) {
    for (int shape = 0; shape < kOtherShapes; ++shape) {
      constexpr Logits kLogits[] = {Logits::kNone, Logits::kLast, Logits::kAll};
      Step(runner->get(), 2 + shape / 3, kLogits[shape % 3]);
    }
    built.push_back(Step(runner->get(), 1, Logits::kLast));
    for (int again = 0; again < 4; ++again) {
      reused.push_back(Step(runner->get(), 1, Logits::kLast));
    }
  }
  fmt::print(
      "decode step of {} layers: {:.0f} us with the graph kept, {:.0f} us with it built anew\n",
      model->config().num_layers, Median(reused), Median(built));
}

void MeasureScheduling(const ModelConfig& model, int num_sequences) {
  auto cache = KvCacheManager::Create(CacheConfig(model, num_sequences));
  CHECK(cache.has_value());
  Scheduler scheduler(cache->get(), std::max(512, num_sequences));
  for (int i = 0; i < num_sequences; ++i) scheduler.Add(RequestId{i}, 1, std::nullopt);
  const auto step = [&] {
    for (const ScheduledChunk& chunk : scheduler.Schedule().chunks) {
      (*cache)->Commit(chunk.sequence);
      scheduler.AppendToken(chunk.request);
    }
  };
  step();  // admits them all
  constexpr int kSteps = 1000;
  const double begin = CpuMicroseconds();
  for (int i = 0; i < kSteps; ++i) step();
  fmt::print("scheduling {} decoding sequences: {:.2f} us per step\n", num_sequences,
             (CpuMicroseconds() - begin) / kSteps);
}

}  // namespace
}  // namespace turboquant

int main(int argc, char** argv) {
  using namespace turboquant;
  if (argc < 2) {
    fmt::print(stderr, "usage: step_cost MODEL.gguf [REPETITIONS]\n");
    return 2;
  }
  const auto model = Model::Load({.path = argv[1]});
  if (!model) {
    fmt::print(stderr, "{}\n", model.error().message);
    return 2;
  }
  MeasureGraph(*model, argc > 2 ? std::max(1, std::atoi(argv[2])) : 30);
  for (const int count : {1, 8, 64}) MeasureScheduling((*model)->config(), count);
  return 0;
}
