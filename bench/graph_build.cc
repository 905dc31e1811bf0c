// Cost of building the graph of a step, placing its tensors and planning it, in CPU time: what a
// step of a new shape pays on top (docs/decisions/003-graphs-and-weights.md).
//   graph_build model.gguf
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/check.h"
#include "model/model.h"
#include "model/model_impl.h"
#include "model/step_graph.h"

namespace turboquant {
namespace {

constexpr int kRepetitions = 51;

double CpuMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

void Run(const char* path) {
  const auto model = Model::Load({.path = path});
  CHECK(model.has_value());
  PagedAttention* const attention = nullptr;
  std::vector<AttentionNode> nodes;
  for (int layer = 0; layer < (*model)->config().num_layers; ++layer)
    nodes.push_back({.attention = &attention, .layer = layer});
  fmt::print("{:>6} {:>8} {:>7} {:>16} {:>20} {:>12}\n", "rows", "outputs", "nodes",
             "first build, us", "rebuilt in place, us", "buffer, KiB");
  for (const auto& [rows, outputs] : {std::pair{1, 1}, {8, 8}, {64, 1}, {512, 1}, {512, 0}}) {
    std::vector<double> first, rebuilt;
    StepGraph step;
    for (int i = 0; i < kRepetitions; ++i) {
      for (std::vector<double>* times : {&first, &rebuilt}) {
        if (times == &first) step = StepGraph();
        const double start = CpuMicroseconds();
        BuildStepGraph({.config = &(*model)->config(),
                        .architecture = (*model)->impl().architecture,
                        .weights = (*model)->impl().weights.get(),
                        .attention_nodes = nodes,
                        .num_rows = rows,
                        .num_outputs = outputs,
                        .num_threads = 1,
                        .pool = nullptr},
                       &step);
        times->push_back(CpuMicroseconds() - start);
      }
    }
    const auto median = [](std::vector<double>& times) {
      std::ranges::sort(times);
      return times[times.size() / 2];
    };
    fmt::print("{:6} {:8} {:7} {:16.0f} {:20.0f} {:12}\n", rows, outputs,
               ggml_graph_n_nodes(step.graph), median(first), median(rebuilt), step.bytes() / 1024);
  }
}

}  // namespace
}  // namespace turboquant

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: graph_build model.gguf\n");
    return 1;
  }
  turboquant::Run(argv[1]);
}
